package incidents_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	workloadsv1 "github.com/toolway/toolway/gen/agentops/workloads/v1"
)

// backend restarts as the mesh and the workload service do together: the first calls are held; then each key is executed once, and recorded.
type backend struct {
	mu       sync.Mutex
	held     int
	executed map[string]*workloadsv1.Action
	times    int
}

func (b *backend) restart(_ context.Context, r proto.Message) (proto.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > 0 {
		b.held--
		return nil, held("A1")
	}
	req := r.(*workloadsv1.RestartWorkloadRequest)
	key := fmt.Sprintf("%s:%s:%d", req.GetIncident(), req.GetName(), req.GetGeneration())
	if old := b.executed[key]; old != nil {
		return old, nil
	}
	b.times++
	b.executed[key] = action(r, workloadsv1.Action_STATE_SUCCEEDED)
	return b.executed[key], nil
}

func (b *backend) lookup(_ context.Context, r proto.Message) (proto.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	req := r.(*workloadsv1.LookupActionRequest)
	if old := b.executed[fmt.Sprintf("%s:%s:%d", req.GetIncident(), req.GetName(), req.GetGeneration())]; old != nil {
		return old, nil
	}
	return notBegun(r)
}

// The built program is killed with SIGKILL after random numbers of events, again and again, while several diagnoses run: each comes to its end with the action done
// once, and a reader who comes back with the last event that it has gets every event once.
func TestKilled(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "incidents")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	f := startTools(t)
	f.slow = 20 * time.Millisecond // so that it is killed in the midst of something
	b := &backend{held: 6, executed: map[string]*workloadsv1.Action{}}
	f.on("RestartWorkload", b.restart)
	f.on("LookupAction", b.lookup)
	args := []string{"--addr", "127.0.0.1:0", "--data", t.TempDir(), "--mesh", f.listen(t), "--window", "1s", "--poll", "10ms"}

	const diagnoses = 3
	names := make([]string, diagnoses)
	at := make([]int, diagnoses) // the last event that the reader has
	over := make([]bool, diagnoses)
	p := spawn(t, binary, args)
	for i := range names {
		req := request()
		req.Incident = fmt.Sprint("inc-", i)
		names[i] = p.begin(t, req).GetName()
	}
	kills := 0
	for {
		left := 0
		for i := range names {
			if over[i] {
				continue
			}
			left++
			// One that has been read to its end is done with; of the others a few events are read, and then the process dies.
			over[i] = p.read(t, names[i], &at[i], 4+rand.IntN(12))
		}
		if left == 0 {
			break
		}
		p.kill()
		kills++
		p = spawn(t, binary, args)
	}
	if kills < 2 {
		t.Errorf("it was killed %d times only", kills)
	}
	for i, name := range names {
		d := p.get(t, name)
		if d.GetState() != incidentsv1.Diagnosis_STATE_COMPLETED || d.GetAction().GetOutcome() != "succeeded" {
			t.Errorf("diagnosis: %v", d)
		}
		events := p.follow(t, name, "")
		gapless(t, events, 0)
		if len(events) != at[i] {
			t.Errorf("%d events were read, there are %d", at[i], len(events))
		}
	}
	if b.times != diagnoses || len(b.executed) != diagnoses {
		t.Errorf("%d restarts of %d incidents, want one of each: %v", b.times, len(b.executed), b.executed)
	}
	t.Logf("killed %d times, %v events", kills, at)
	p.kill()
}

// running is the program in a process of its own.
type running struct {
	service

	kill func()
}

func spawn(t *testing.T, binary string, args []string) *running {
	t.Helper()
	cmd := exec.Command(binary, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := regexp.MustCompile(`msg=serving addr=(\S+)$`).FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			} else {
				fmt.Fprintln(os.Stderr, lines.Text())
			}
		}
	}()
	p := &running{}
	var conn *grpc.ClientConn
	p.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if conn != nil {
			_ = conn.Close()
		}
	})
	t.Cleanup(p.kill)
	select {
	case a := <-addr:
		if conn, err = grpc.NewClient("passthrough:"+a, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not serve")
	}
	p.IncidentServiceClient = incidentsv1.NewIncidentServiceClient(conn)
	return p
}

// read reads up to n events after *at, which it moves on, and says whether the last of all was among them.
func (p *running) read(t *testing.T, name string, at *int, n int) (over bool) {
	t.Helper()
	stream, err := p.WatchDiagnosis(within(t), &incidentsv1.WatchDiagnosisRequest{Name: name, Cursor: cursorOf(name, *at)})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		if *at++; e.GetEventId() != cursorOf(name, *at) {
			t.Fatalf("event %s, want %d", e.GetEventId(), *at)
		}
	}
	return false
}
