// Package workloads is a tool backend: agentops.workloads.v1.WorkloadService, which shows what runs, and restarts and scales it.
//
// It is an example of a service whose writes are safe to repeat. A change is recorded in one SQL transaction: the idempotency record
// (an action), the change that is wanted, and the event that tells of it ([Store]). After the commit a [Server] has a [Driver] carry it out, by comparing what is
// wanted with what there is rather than by running commands in turn, so that work that a crash has cut off is simply done again. Events are read from the outbox: by
// WatchWorkload, and by a [Publisher].
package workloads
