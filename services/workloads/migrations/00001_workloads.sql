-- +goose Up

-- What this database is, and the last number of its outbox. Every transaction that writes locks this one row first: numbers have no gaps, and become visible in their order.
CREATE TABLE head (
  id BIGINT PRIMARY KEY,
  store TEXT NOT NULL,
  seq BIGINT NOT NULL,
  pruned BIGINT NOT NULL
);

-- What is wanted of each workload, and how it was last seen to fare.
CREATE TABLE workloads (
  name TEXT PRIMARY KEY,
  generation BIGINT NOT NULL,
  replicas BIGINT NOT NULL,
  restart BIGINT NOT NULL,
  applied BIGINT NOT NULL,
  revision TEXT NOT NULL,
  gone BIGINT NOT NULL,
  status TEXT NOT NULL,
  update_time BIGINT NOT NULL
);

-- Idempotency records, and how far each action has come.
CREATE TABLE actions (
  id TEXT PRIMARY KEY,
  incident TEXT NOT NULL,
  kind BIGINT NOT NULL,
  workload TEXT NOT NULL,
  generation BIGINT NOT NULL,
  target BIGINT NOT NULL,
  request_hash TEXT NOT NULL,
  replicas BIGINT NOT NULL,
  reason TEXT NOT NULL,
  principal TEXT NOT NULL,
  state BIGINT NOT NULL,
  error TEXT NOT NULL,
  create_time BIGINT NOT NULL,
  end_time BIGINT NOT NULL,
  UNIQUE (incident, kind, workload, generation)
);

CREATE INDEX actions_open ON actions (state, workload);

-- Events, written with what they tell of and delivered after it.
CREATE TABLE outbox (
  seq BIGINT PRIMARY KEY,
  workload TEXT NOT NULL,
  event_type TEXT NOT NULL,
  occurred BIGINT NOT NULL,
  payload TEXT NOT NULL
);

CREATE INDEX outbox_workload ON outbox (workload, seq);

-- How far each publisher has delivered.
CREATE TABLE publications (
  publisher TEXT PRIMARY KEY,
  seq BIGINT NOT NULL
);

-- +goose Down
DROP TABLE publications;
DROP TABLE outbox;
DROP TABLE actions;
DROP TABLE workloads;
DROP TABLE head;
