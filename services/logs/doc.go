// Package logs is a tool backend: agentops.logs.v1.LogService on VictoriaLogs, embedded or as a server.
//
// It is an ordinary gRPC server and knows nothing of the mesh in front of it. To write a tool of your own, copy its shape: a
// contract in proto/, one type that implements the generated interface ([Server]), one narrow interface towards the engine
// ([Engine]), errors that carry google.rpc details (errors.go), and a main that wires them, with health and reflection.
package logs
