//go:build nokubernetes

package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"

	"github.com/toolway/toolway/services/workloads"
)

type kubernetesFlags struct{}

func (*kubernetesFlags) add(*flag.FlagSet) {}

func (*kubernetesFlags) open(context.Context, *slog.Logger) (workloads.Driver, func() error, error) {
	return nil, nil, errors.New("--driver kubernetes: this program was built without it, with the tag nokubernetes")
}
