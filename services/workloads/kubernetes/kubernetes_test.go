package kubernetes_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
	"github.com/toolway/toolway/services/workloads"
	"github.com/toolway/toolway/services/workloads/kubernetes"
)

const (
	patience   = 30 * time.Second
	annotation = "workloads.agentops.dev/restart-generation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is client-go's fake clientset, with what a real API server adds to its store of objects: it counts generations up when a spec changes, gives each write a resource version
// and refuses updates of an older one. No controller runs: the test sets each status.
type cluster struct {
	*fake.Clientset
	t       *testing.T
	mu      sync.Mutex
	version int
	updates int
	before  func() // runs once, before the next update: as if somebody else were quicker
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(objects...), t: t}
	c.PrependReactor("update", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		before := c.before
		c.before = nil
		c.mu.Unlock()
		if before != nil {
			before()
		}
		d, err := c.write(a.(clienttesting.UpdateAction).GetObject().(*appsv1.Deployment).DeepCopy(), a.GetSubresource() == "status")
		return true, d, err
	})
	return c
}

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// write does what the API server does with an update of the object, or of its status.
func (c *cluster) write(d *appsv1.Deployment, status bool) (*appsv1.Deployment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.Tracker().Get(deployments, d.Namespace, d.Name)
	if err != nil {
		return nil, err
	}
	old := stored.(*appsv1.Deployment)
	if d.ResourceVersion != old.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, d.Name, errors.New("the object has been modified"))
	}
	c.updates++
	c.version++
	d.ResourceVersion, d.Generation = strconv.Itoa(1000+c.version), old.Generation
	if status {
		d.Spec = old.Spec
	} else if d.Status = old.Status; d.Spec.String() != old.Spec.String() {
		d.Generation++
	}
	return d, c.Tracker().Update(deployments, d, d.Namespace)
}

// deployment is a new one, all of whose replicas are ready.
func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name + "-uid"), Generation: 1, ResourceVersion: "1", Labels: map[string]string{"tier": name}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas},
	}
}

func (c *cluster) get(name string) *appsv1.Deployment {
	c.t.Helper()
	d, err := c.Tracker().Get(deployments, "shop", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return d.(*appsv1.Deployment).DeepCopy()
}

// edit changes a deployment as kubectl would.
func (c *cluster) edit(name string, f func(*appsv1.Deployment)) {
	c.t.Helper()
	d := c.get(name)
	f(d)
	if _, err := c.write(d, false); err != nil {
		c.t.Error(err)
	}
}

// rollOut sets the status that the controller would come to.
func (c *cluster) rollOut(name string) {
	c.t.Helper()
	d := c.get(name)
	n := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	if _, err := c.write(d, true); err != nil {
		c.t.Error(err)
	}
}

func open(t *testing.T, c *cluster, selector string) *kubernetes.Driver {
	t.Helper()
	d, err := kubernetes.Open(t.Context(), c, kubernetes.Options{Namespace: "shop", Selector: selector})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func one(t *testing.T, d *kubernetes.Driver, name string) workloads.Observed {
	t.Helper()
	o, err := d.Observe(t.Context(), name)
	if err != nil || len(o) != 1 {
		t.Fatalf("Observe(%q) = %v, %v", name, o, err)
	}
	return o[0]
}

func TestObserves(t *testing.T) {
	elsewhere := deployment("elsewhere", 1)
	elsewhere.Namespace = "other"
	now := time.Now().Truncate(time.Second)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", Labels: map[string]string{"app": "web"}},
		Status: corev1.PodStatus{
			StartTime: &metav1.Time{Time: now},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Time{Time: now}}},
			}},
		},
	}
	c := newCluster(t, deployment("web", 2), deployment("db", 1), elsewhere, pod)
	d := open(t, c, "")
	all, err := d.Observe(t.Context(), "")
	if err != nil || len(all) != 2 || all[0].Name != "db" || all[1].Name != "web" {
		t.Fatalf("Observe = %v, %v, want db and web", all, err)
	}
	if o := all[0]; !o.Settled || o.Failing || o.Ready != 1 || o.Replicas != 1 || o.Revision != "db-uid/1" || o.Labels["tier"] != "db" || o.Crashes != 0 {
		t.Errorf("db = %+v", o)
	}
	if o := one(t, d, "web"); !o.Failing || o.Crashes != 4 || o.LastExit != "pod web-1, container main: OOMKilled, exit status 137" || !o.Started.Equal(now) {
		t.Errorf("web = %+v", o)
	}
	for name, change := range map[string]func(*appsv1.DeploymentStatus){
		"not seen by the controller": func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 0 },
		"old replicas left":          func(s *appsv1.DeploymentStatus) { s.Replicas = 2 },
		"not updated":                func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 0 },
		"not available":              func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 0 },
	} {
		db := deployment("db", 1)
		change(&db.Status)
		if o := one(t, open(t, newCluster(t, db), ""), "db"); o.Settled {
			t.Errorf("%s: settled", name)
		}
	}
	selected := open(t, c, "tier=web")
	if all, err := selected.Observe(t.Context(), ""); err != nil || len(all) != 1 || all[0].Name != "web" {
		t.Errorf("with a selector: %v, %v, want web", all, err)
	}
	for _, name := range []string{"db", "nothing"} {
		if o, err := selected.Observe(t.Context(), name); err != nil || len(o) != 0 {
			t.Errorf("Observe(%q) = %v, %v, want nothing", name, o, err)
		}
	}
}

func TestApplies(t *testing.T) {
	c := newCluster(t, deployment("web", 2))
	d := open(t, c, "")
	apply := func(w workloads.Wanted) string {
		t.Helper()
		revision, err := d.Apply(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	if got := apply(workloads.Wanted{Name: "web", Replicas: 2, Revision: "web-uid/1"}); got != "web-uid/1" || c.updates != 0 {
		t.Errorf("nothing to do: revision %s after %d updates", got, c.updates)
	}
	restart := workloads.Wanted{Name: "web", Replicas: 2, Restart: 2, Revision: "web-uid/1"}
	for range 3 { // the repetition changes nothing
		if got := apply(restart); got != "web-uid/2" || c.updates != 1 {
			t.Errorf("restart: revision %s after %d updates, want web-uid/2 after 1", got, c.updates)
		}
	}
	a := c.get("web").Spec.Template.Annotations
	if _, err := time.Parse(time.RFC3339, a["kubectl.kubernetes.io/restartedAt"]); err != nil || a[annotation] != "2" {
		t.Errorf("annotations = %v, want kubectl's and ours", a)
	}
	if o := one(t, d, "web"); o.Settled {
		t.Error("settled before the controller has seen it")
	}
	c.rollOut("web")
	if o := one(t, d, "web"); !o.Settled {
		t.Errorf("after the roll-out: %+v", o)
	}
	if got := apply(workloads.Wanted{Name: "web", Replicas: 5, Restart: 2, Revision: "web-uid/2"}); got != "web-uid/3" || *c.get("web").Spec.Replicas != 5 || c.get("web").Spec.Template.Annotations[annotation] != "2" {
		t.Errorf("scaling: revision %s, %v", got, c.get("web").Spec)
	}
	if _, err := d.Apply(t.Context(), workloads.Wanted{Name: "nothing"}); !errors.Is(err, workloads.ErrGone) {
		t.Errorf("Apply of nothing = %v, want %v", err, workloads.ErrGone)
	}
}

// Somebody else's change is not overwritten; one of the status alone does not stand in the way.
func TestApplyRaces(t *testing.T) {
	c := newCluster(t, deployment("web", 2))
	d := open(t, c, "")
	c.before = func() { c.rollOut("web") }
	if got, err := d.Apply(t.Context(), workloads.Wanted{Name: "web", Replicas: 3, Revision: "web-uid/1"}); err != nil || got != "web-uid/2" {
		t.Errorf("a status was quicker: %s, %v, want the change", got, err)
	}
	c.before = func() { c.edit("web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 9 }) }
	if _, err := d.Apply(t.Context(), workloads.Wanted{Name: "web", Replicas: 4, Revision: "web-uid/2"}); !errors.Is(err, workloads.ErrChanged) {
		t.Errorf("somebody else was quicker: %v, want %v", err, workloads.ErrChanged)
	}
	if got := *c.get("web").Spec.Replicas; got != 9 {
		t.Errorf("replicas = %d, want those of somebody else", got)
	}
}

// The whole service on deployments: actions go from the call to the controller's success; what kubectl does meanwhile is taken over.
func TestService(t *testing.T) {
	c := newCluster(t, deployment("web", 2))
	store, err := workloads.OpenSQLite(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, c, "")
	s := workloads.New(store, d, workloads.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer func() {
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	get := func() *workloadsv1.Workload {
		t.Helper()
		w, err := s.GetWorkload(t.Context(), &workloadsv1.GetWorkloadRequest{Name: "workloads/web"})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	state := func(incident string, generation int64) workloadsv1.Action_State {
		t.Helper()
		a, err := s.LookupAction(t.Context(), &workloadsv1.LookupActionRequest{Name: "workloads/web", Incident: incident, Kind: workloadsv1.Action_KIND_RESTART, Generation: generation})
		if err != nil {
			t.Fatal(err)
		}
		return a.GetState()
	}
	w := get()
	if w.GetState() != workloadsv1.Workload_STATE_RUNNING || w.GetGeneration() != 1 || w.GetReplicas() != 2 {
		t.Errorf("at first: %v", w)
	}
	restart := &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "inc", Generation: 1, Etag: w.GetEtag()}
	for range 2 {
		if _, err := s.RestartWorkload(t.Context(), restart); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the restart is under way", func() bool {
		return c.get("web").Generation == 2 && state("inc", 1) == workloadsv1.Action_STATE_RUNNING && get().GetState() == workloadsv1.Workload_STATE_PROGRESSING
	})
	c.rollOut("web")
	eventually(t, "the restart has succeeded", func() bool {
		return state("inc", 1) == workloadsv1.Action_STATE_SUCCEEDED && get().GetState() == workloadsv1.Workload_STATE_RUNNING
	})
	before := get()
	c.edit("web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 7 })
	c.rollOut("web")
	eventually(t, "what kubectl did is a new generation", func() bool {
		w := get()
		return w.GetReplicas() == 7 && w.GetGeneration() == 3 && w.GetEtag() != before.GetEtag()
	})
	// A change that somebody else overtakes between the call and the cluster fails, and says so.
	c.mu.Lock()
	c.before = func() { c.edit("web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 8 }) }
	c.mu.Unlock()
	if _, err := s.RestartWorkload(t.Context(), &workloadsv1.RestartWorkloadRequest{Name: "workloads/web", Incident: "late", Generation: 3}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the overtaken restart has failed", func() bool { return state("late", 3) == workloadsv1.Action_STATE_FAILED })
	eventually(t, "what was quicker is wanted", func() bool { return get().GetReplicas() == 8 && get().GetGeneration() == 5 })
	if got := c.get("web").Spec.Template.Annotations[annotation]; got != "2" {
		t.Errorf("restart generation = %q, want that of the first restart alone", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, o := range []kubernetes.Options{{}, {Namespace: "shop", Selector: "a in ("}} {
		if d, err := kubernetes.Open(t.Context(), newCluster(t), o); err == nil {
			t.Errorf("Open(%+v) = nil, want an error", o)
			_ = d.Close()
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
