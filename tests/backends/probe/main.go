// Command probe serves the probe service from a process of its own, for tests that kill it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/toolway/toolway/tests/internal/probe"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to serve on")
	reflection := flag.String("reflection", string(probe.Both), "v1, v1alpha, both or none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := probe.New().Serve(ctx, *addr, probe.Reflection(*reflection), func(addr string) { fmt.Println("listening", addr) })
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
