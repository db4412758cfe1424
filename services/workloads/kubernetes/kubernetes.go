// Package kubernetes is the driver of package workloads for the deployments of a namespace.
//
// What is wanted lives in the cluster: others may change it, and the driver notices by a deployment's uid and generation. Both a restart and a scaling are one update with the resource
// version that was read, so that nothing of others is overwritten unseen, and a restart is an annotation of the pod template, as kubectl's is, that names the generation it comes from: to repeat it
// changes nothing.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/toolway/toolway/services/workloads"
)

const (
	// restartAnnotation of a pod template names the generation of the restart that pods come from.
	restartAnnotation = "workloads.agentops.dev/restart-generation"
	// kubectlAnnotation is what kubectl rollout restart sets; tools show it.
	kubectlAnnotation = "kubectl.kubernetes.io/restartedAt"
	// tries is how often an update is tried that only the status, or an annotation, has overtaken.
	tries = 5
	// watchPause is the pause before a watch that ended is begun again.
	watchPause = time.Second
	// callTimeout is for one call of the API server.
	callTimeout = 10 * time.Second
)

// Options configures [Open].
type Options struct {
	// Namespace whose deployments are looked after. Required.
	Namespace string
	// Selector narrows them by labels, such as tier=web. Default: all.
	Selector string
	// Logger hears of watches that end. Default: nobody.
	Logger *slog.Logger
}

// Driver implements [workloads.Driver]. It needs the rights get, list, watch and update on deployments, and list on pods.
type Driver struct {
	client  kubernetes.Interface
	options Options
	select_ labels.Selector
	changed chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var _ workloads.Driver = (*Driver)(nil)

// Connect returns a client for a kubeconfig file, and the namespace that it names. Without one it looks where kubectl does, and in a pod uses the service account.
func Connect(kubeconfig, contextName string) (kubernetes.Interface, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName})
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	rest, err := config.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w; name one with --kubeconfig", err)
	}
	client, err := kubernetes.NewForConfig(rest)
	return client, namespace, err
}

// Open begins to watch. Close ends that.
func Open(ctx context.Context, client kubernetes.Interface, options Options) (*Driver, error) {
	if options.Namespace == "" {
		return nil, errors.New("kubernetes driver: Namespace is required; name one with --namespace")
	}
	selector, err := labels.Parse(options.Selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Driver{client: client, options: options, select_: selector, changed: make(chan struct{}, 1)}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.running.Go(func() { d.watch(ctx) })
	return d, nil
}

// Close ends the watch and waits for it.
func (d *Driver) Close() error {
	d.cancel()
	d.running.Wait()
	return nil
}

// Changed implements [workloads.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// watch tells of changes. What has changed is read anew, so a watch that ends loses nothing.
func (d *Driver) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := d.client.AppsV1().Deployments(d.options.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: d.select_.String()})
		if err == nil {
			d.notify() // of what happened before
			for open := true; open; {
				select {
				case _, open = <-w.ResultChan():
					d.notify()
				case <-ctx.Done():
					open = false
				}
			}
			w.Stop()
		} else if ctx.Err() == nil {
			d.options.Logger.WarnContext(ctx, "deployments cannot be watched; trying again", "error", err, "retry_in", watchPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

func (d *Driver) notify() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Observe implements [workloads.Driver]. It asks the API server each time, rather than a cache that may be behind.
func (d *Driver) Observe(ctx context.Context, name string) ([]workloads.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var items []appsv1.Deployment
	if name != "" {
		one, err := d.client.AppsV1().Deployments(d.options.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, reach(err)
		}
		if !d.select_.Matches(labels.Set(one.Labels)) {
			return nil, nil
		}
		items = []appsv1.Deployment{*one}
	} else {
		list, err := d.client.AppsV1().Deployments(d.options.Namespace).List(ctx, metav1.ListOptions{LabelSelector: d.select_.String()})
		if err != nil {
			return nil, reach(err)
		}
		items = list.Items
	}
	pods, err := d.pods(ctx, items)
	if err != nil {
		return nil, err
	}
	out := make([]workloads.Observed, len(items))
	for i := range items {
		out[i] = observed(&items[i], pods)
	}
	slices.SortFunc(out, func(a, b workloads.Observed) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// pods lists the pods of the namespace, or of one deployment.
func (d *Driver) pods(ctx context.Context, items []appsv1.Deployment) ([]corev1.Pod, error) {
	options := metav1.ListOptions{}
	if len(items) == 1 {
		options.LabelSelector = metav1.FormatLabelSelector(items[0].Spec.Selector)
	}
	list, err := d.client.CoreV1().Pods(d.options.Namespace).List(ctx, options)
	if err != nil {
		return nil, reach(err)
	}
	return list.Items, nil
}

func revision(d *appsv1.Deployment) string {
	return string(d.UID) + "/" + strconv.FormatInt(d.Generation, 10)
}

// replicas is how many a deployment wants; one if it does not say.
func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// observed says how a deployment fares, by what kubectl rollout status goes by.
func observed(d *appsv1.Deployment, pods []corev1.Pod) workloads.Observed {
	want := replicas(d)
	o := workloads.Observed{Name: d.Name, Labels: d.Labels, Revision: revision(d), Replicas: want, Ready: d.Status.ReadyReplicas}
	s := &d.Status
	o.Settled = s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ReadyReplicas == want
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse || c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			o.Failing, o.LastExit = true, c.Reason+": "+c.Message
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return o
	}
	var last time.Time
	for i := range pods {
		p := &pods[i]
		if !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		if p.Status.StartTime != nil && p.Status.StartTime.After(o.Started) {
			o.Started = p.Status.StartTime.Time
		}
		for j := range p.Status.ContainerStatuses {
			c := &p.Status.ContainerStatuses[j]
			o.Crashes += int64(c.RestartCount)
			if w := c.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
				o.Failing = true
			}
			if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
				last, o.LastExit = t.FinishedAt.Time, fmt.Sprintf("pod %s, container %s: %s, exit status %d", p.Name, c.Name, t.Reason, t.ExitCode)
			}
		}
	}
	return o
}

// Apply implements [workloads.Driver].
func (d *Driver) Apply(ctx context.Context, w workloads.Wanted) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	deployments := d.client.AppsV1().Deployments(d.options.Namespace)
	var err error
	for range tries {
		var now *appsv1.Deployment
		now, err = deployments.Get(ctx, w.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", workloads.ErrGone
		}
		if err != nil {
			return "", reach(err)
		}
		restarted := now.Spec.Template.Annotations[restartAnnotation]
		restart, _ := strconv.ParseInt(restarted, 10, 64) // what is no number is none of ours
		if replicas(now) == w.Replicas && restart >= w.Restart {
			return revision(now), nil
		}
		if revision(now) != w.Revision {
			return "", workloads.ErrChanged
		}
		now.Spec.Replicas = &w.Replicas
		if restart < w.Restart {
			if now.Spec.Template.Annotations == nil {
				now.Spec.Template.Annotations = map[string]string{}
			}
			now.Spec.Template.Annotations[restartAnnotation] = strconv.FormatInt(w.Restart, 10)
			now.Spec.Template.Annotations[kubectlAnnotation] = time.Now().UTC().Format(time.RFC3339)
		}
		var done *appsv1.Deployment
		if done, err = deployments.Update(ctx, now, metav1.UpdateOptions{FieldManager: "toolway-workloads"}); err == nil {
			return revision(done), nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return "", reach(err)
}

// reach marks errors that say that the API server is out of reach, or asks for a pause.
func reach(err error) error {
	var network net.Error
	if errors.As(err, &network) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsConflict(err) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("kubernetes %w: %w", workloads.ErrUnreachable, err)
	}
	return err
}
