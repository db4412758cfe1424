// Command bench measures the built binary next to others that do the same work, every one in processes of their own and turn by turn: the doors
// against a direct call and against peers, the codec, the chain, schemas, large catalogs, the store, and the start. Only ratios carry over to
// another machine.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "fewer and shorter rounds, without peers: under a minute")
	out := flag.String("o", "", "also write the tables to this document, between its <!-- bench:… --> lines")
	parts := flag.String("only", "", "a list of parts, of "+strings.Join(partNames(), ", ")+"; default: all")
	one := flag.Int("callers", 0, "measure the doors with so many callers only; default: 1, 16 and 64")
	readersOnly := flag.Bool("load", false, "measure many readers of task events, and nothing else")
	streamsOnly := flag.Bool("streams", false, "measure what streams of each kind cost that are silent, and nothing else")
	kind := flag.String("kind", "", "with -streams: only the kinds whose names have this text")
	idle := flag.Int("idle", 2000, "with -load: readers of a silent task; with -streams: streams of a kind")
	active := flag.Int("active", 200, "with -load: readers of a busy task")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGPIPE) // whoever reads the tables may go
	defer stop()
	var err error
	switch {
	case *streamsOnly:
		err = idleStreams(*idle, *kind)
	case *readersOnly:
		of := crowd{idle: *idle, active: *active, events: 1000, pace: 20 * time.Millisecond}
		if *quick {
			of.events = 100
		}
		err = watchers(of)
	default:
		err = all(ctx, *quick, *one, *out, *parts)
	}
	if err != nil {
		stop()
		log.Fatal(err) //nolint:gocritic // stop has been called
	}
}
