// Package toolway is the root of the module: a gRPC-first tool mesh. The binary is cmd/toolway; the doors are mcpadapter and gateway, and
// internal/proxy for gRPC.
package toolway
