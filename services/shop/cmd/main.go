// Command shop runs one process of the sample shop: checkout, payment or inventory, by --role.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/toolway/toolway/services/shop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "shop: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	c := shop.Config{Log: stderr}
	set := flag.NewFlagSet("shop", flag.ContinueOnError)
	set.SetOutput(stderr)
	addr := set.String("addr", "127.0.0.1:7180", "address to serve HTTP on: loopback, since anybody may switch the fault")
	file := set.String("log", "", "file that log lines are appended to; several processes may share one; default: standard error")
	set.StringVar(&c.Role, "role", "", "what this process is: checkout, payment or inventory; required")
	set.StringVar(&c.Payment, "payment", "", "URL of payment, for checkout")
	set.StringVar(&c.Inventory, "inventory", "", "URL of inventory, for checkout and payment")
	set.IntVar(&c.Connections, "connections", 16, "connections that payment may have to inventory")
	set.Float64Var(&c.Load, "load", 0, "orders a second that checkout gives itself")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; every option starts with --", set.Arg(0))
	}
	if *file != "" {
		// Each line is one write in append mode, so those of several processes do not mix.
		f, err := os.OpenFile(*file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("--log: %w", err)
		}
		defer f.Close()
		c.Log = f
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *addr)
	if err != nil {
		return fmt.Errorf("listen on %q: %w; choose another address with --addr", *addr, err)
	}
	return shop.Run(ctx, listener, c)
}
