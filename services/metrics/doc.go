// Package metrics is a tool backend: agentops.metrics.v1.MetricService on Prometheus' own PromQL engine over a small store in memory that scrapes
// its targets, or on any server with Prometheus' HTTP API.
//
// It is an ordinary gRPC server and knows nothing of the mesh in front of it. [Server] checks requests and shapes answers; [Engine] is the
// narrow interface to what evaluates, with two drivers, [Embedded] and [Remote].
package metrics
