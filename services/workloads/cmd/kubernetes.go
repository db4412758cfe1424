//go:build !nokubernetes

package main

import (
	"context"
	"flag"
	"log/slog"

	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/kubernetes"
)

// kubernetesFlags are those of --driver kubernetes. The build tag nokubernetes leaves the driver out.
type kubernetesFlags struct {
	kubeconfig, context, namespace, selector string
}

func (f *kubernetesFlags) add(set *flag.FlagSet) {
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "with --driver kubernetes: the kubeconfig file; default: $KUBECONFIG, ~/.kube/config, or the pod's service account")
	set.StringVar(&f.context, "kube-context", "", "with --driver kubernetes: the kubeconfig's context; default: its current one")
	set.StringVar(&f.namespace, "namespace", "", "with --driver kubernetes: the namespace; default: the context's, or the pod's")
	set.StringVar(&f.selector, "selector", "", "with --driver kubernetes: only deployments with these labels, such as tier=web")
}

func (f *kubernetesFlags) open(ctx context.Context, logger *slog.Logger) (workloads.Driver, func() error, error) {
	client, namespace, err := kubernetes.Connect(f.kubeconfig, f.context)
	if err != nil {
		return nil, nil, err
	}
	if f.namespace != "" {
		namespace = f.namespace
	}
	driver, err := kubernetes.Open(ctx, client, kubernetes.Options{Namespace: namespace, Selector: f.selector, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	return driver, driver.Close, nil
}
