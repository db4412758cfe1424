// Package runbooks is a tool backend: agentops.runbooks.v1.RunbookService on the Markdown files of a folder or git checkout.
//
// It is an ordinary gRPC server and knows nothing of the mesh in front of it. A [Library] reads the folder, notices changes and keeps the
// index; the [Server] checks requests and answers from it. It never writes to the folder.
package runbooks
