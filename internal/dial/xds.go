package dial

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/xds" // what "xds:" targets need
)

// controlled says whether a control plane says where the endpoints of target are and how calls go round them. Its balancers are then in the place of
// ours: health is what the control plane says, and calls are not counted against what servers allow.
func controlled(target string) bool { return strings.HasPrefix(target, "xds:") }

// checkAlone refuses other targets beside one whose endpoints a control plane names.
func checkAlone(targets []string) error {
	for _, t := range targets {
		if controlled(t) && len(targets) > 1 {
			return fmt.Errorf("target %q: a control plane names all endpoints of the backend, so there can be no other target: let it name them, or make two backends", t)
		}
	}
	return nil
}

// counted counts a stream that the balancing policy does not count, so that its connection is not closed as unused.
func (m *member) counted() grpc.CallOption {
	m.used.Add(1)
	return grpc.OnFinish(func(error) { m.used.Add(-1) })
}
