package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// QueueConfig says how a queue gives out work.
type QueueConfig struct {
	// Name is [a-zA-Z0-9_-]+, unique in the store.
	Name string
	// MaxBytes and MaxMessages bound the queue. Work beyond is ErrFull. Default 1 GiB and 100,000.
	MaxBytes, MaxMessages int64
	// Lease is how long a worker has a job before it is given to another, unless it asks for more time. Default 30 seconds.
	Lease time.Duration
	// MaxDeliveries is how often a job is given out before it goes to the dead letters. Default 5.
	MaxDeliveries int
}

// Queue gives each job to one worker at a time, of whatever instance, until one says that it is done. It is safe for concurrent use.
type Queue struct {
	store    *Store
	stream   jetstream.Stream
	consumer jetstream.Consumer
	opened   time.Time
	prefix   string
	dead     *Log
	conf     QueueConfig
}

// Queue opens a queue, and makes it if it is not there.
func (s *Store) Queue(ctx context.Context, c QueueConfig) (*Queue, error) {
	if !legalName(c.Name) {
		return nil, fmt.Errorf("store: queue %q: want letters, digits, _ and -", c.Name)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.MaxMessages == 0 {
		c.MaxMessages = 100_000
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.MaxDeliveries == 0 {
		c.MaxDeliveries = 5
	}
	q := &Queue{store: s, prefix: s.conf.Prefix + ".queue." + c.Name + ".", conf: c}
	var err error
	if q.dead, err = s.Log(ctx, LogConfig{Name: c.Name + "-dead", MaxBytes: c.MaxBytes}); err != nil {
		return nil, err
	}
	if q.stream, err = s.stream(ctx, jetstream.StreamConfig{
		Name: s.name("queue", c.Name), Subjects: []string{q.prefix + ">"}, Retention: jetstream.WorkQueuePolicy, MaxBytes: c.MaxBytes, MaxMsgs: c.MaxMessages,
		Duplicates: 2 * time.Minute,
	}); err != nil {
		return nil, err
	}
	err = s.insist(ctx, s.name("queue", c.Name)+"'s workers", func(ctx context.Context) (err error) {
		q.consumer, err = q.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.Lease, MaxDeliver: -1, MaxAckPending: int(c.MaxMessages),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: queue %q: %w", c.Name, err)
	}
	q.opened = time.Now()
	return q, nil
}

// Put adds a job. A second one with the same id within two minutes is not added again.
func (q *Queue) Put(ctx context.Context, id string, data []byte) error {
	_, err := q.store.publish(ctx, q.opened, &nats.Msg{Subject: q.prefix + Token(id), Data: data}, jetstream.WithMsgID(id))
	return err
}

// Job is work that was given out.
type Job struct {
	Data []byte
	// Delivery counts from 1.
	Delivery int

	msg   jetstream.Msg
	queue *Queue
}

// Take waits for a job. What was given out as often as the configuration allows goes to the dead letters instead. While the store is not
// available it waits.
func (q *Queue) Take(ctx context.Context) (*Job, error) {
	for {
		batch, err := q.consumer.Fetch(1, jetstream.FetchContext(ctx))
		if err == nil {
			for m := range batch.Messages() {
				job, err := q.job(ctx, m)
				if job != nil {
					return job, nil
				}
				if err != nil {
					q.store.log.Warn("a job was not taken; it comes again", "queue", q.conf.Name, "error", err)
				}
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err = errors.Join(err, batchError(batch)); err != nil {
			select { // the store is away
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
}

func batchError(b jetstream.MessageBatch) error {
	if b == nil {
		return nil
	}
	return b.Error()
}

// job returns the job of a message, or nil if it has gone to the dead letters.
func (q *Queue) job(ctx context.Context, m jetstream.Msg) (*Job, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, classify(err)
	}
	if int(meta.NumDelivered) <= q.conf.MaxDeliveries {
		return &Job{Data: m.Data(), Delivery: int(meta.NumDelivered), msg: m, queue: q}, nil
	}
	if _, err := q.dead.Append(ctx, strings.TrimPrefix(m.Subject(), q.prefix), m.Data(), strconv.FormatUint(meta.Sequence.Stream, 10)); err != nil {
		return nil, err // the job stays, and comes again
	}
	q.store.log.Error("a job was given out too often, and is among the dead letters", "queue", q.conf.Name, "deliveries", meta.NumDelivered-1)
	return nil, classify(m.DoubleAck(ctx))
}

// Done says that the job is done. It returns when the queue has noted that.
func (j *Job) Done(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.queue.store.conf.Timeout)
	defer cancel()
	return classify(j.msg.DoubleAck(ctx))
}

// Extend begins the lease anew.
func (j *Job) Extend() error { return classify(j.msg.InProgress()) }

// Return gives the job to another worker, after a delay.
func (j *Job) Return(after time.Duration) error { return classify(j.msg.NakWithDelay(after)) }

// Dead gives each dead letter, oldest first, to each.
func (q *Queue) Dead(ctx context.Context, each func(Event) error) error {
	_, err := q.dead.Read(ctx, ">", 0, each)
	return err
}

// Len returns how many jobs wait or are given out.
func (q *Queue) Len(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, q.store.conf.Timeout)
	defer cancel()
	info, err := q.stream.Info(ctx)
	if err != nil {
		return 0, classify(err)
	}
	return int(info.State.Msgs), nil
}
