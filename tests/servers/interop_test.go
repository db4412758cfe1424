package servers_test

import (
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	orcav3 "github.com/cncf/xds/go/xds/service/orca/v3"
	interop "google.golang.org/grpc/interop/grpc_testing"

	"github.com/toolway/toolway/tests/internal/protoset"
	"github.com/toolway/toolway/tests/internal/run"
)

// interopCases are what grpc-go's interop client can do without a cloud.
var interopCases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "timeout_on_sleeping_server",
	"cancel_after_begin", "cancel_after_first_response", "status_code_and_message", "special_status_message", "custom_metadata",
	"unimplemented_method", "unimplemented_service", "orca_per_rpc", "orca_oob",
	"rpc_soak", "channel_soak",
}

// interopLeftOut are the cases that are not run, with the reason.
var interopLeftOut = map[string]string{
	"pick_first_unary":                   "needs several servers that name themselves; grpc-go's interop server does not, nor does grpc-go's own script run it",
	"compute_engine_creds":               "needs a Google Compute Engine instance",
	"compute_engine_channel_credentials": "needs a Google Compute Engine instance",
	"google_default_credentials":         "needs a Google Cloud service account, and TLS to Google's test server",
	"service_account_creds":              "needs a Google Cloud service account; the server must see the caller's authorization, which never crosses the mesh",
	"jwt_token_creds":                    "needs a Google Cloud service account; the server must see the caller's authorization, which never crosses the mesh",
	"oauth2_auth_token":                  "needs a Google Cloud service account; the server must see the caller's authorization, which never crosses the mesh",
	"per_rpc_creds":                      "needs a Google Cloud service account; the server must see the caller's authorization, which never crosses the mesh",
}

// TestInterop runs grpc-go's own interop client against grpc-go's own interop server, with nothing between them and with the mesh.
func TestInterop(t *testing.T) {
	t.Parallel()
	server, err := run.Package("interop-server", "google.golang.org/grpc/interop/server")
	if err != nil {
		t.Fatal(err)
	}
	client, err := run.Package("interop-client", "google.golang.org/grpc/interop/client")
	if err != nil {
		t.Fatal(err)
	}
	backend := startInteropServer(t, server)
	set := filepath.Join(t.TempDir(), "interop.binpb")
	if err := protoset.Write(set, interop.File_grpc_testing_test_proto, orcav3.File_xds_service_orca_v3_orca_proto); err != nil {
		t.Fatal(err)
	}
	mesh := run.Start(t, "--backend", "interop="+backend, "--descriptors", "interop="+set)
	for _, path := range []struct{ name, addr string }{{"direct", backend}, {"mesh", mesh.GRPC}} {
		host, port, err := net.SplitHostPort(path.addr)
		if err != nil {
			t.Fatal(err)
		}
		// The load reports of one case would be seen by another: the server has one set of them.
		t.Run(path.name, func(t *testing.T) {
			for _, c := range interopCases {
				t.Run(c, func(t *testing.T) {
					code, stdout, stderr, err := run.Output(nil, client, "-server_host", host, "-server_port", port, "-test_case", c,
						// The load balancer that the ORCA cases look into, as in grpc-go's interop_test.sh.
						"-service_config_json", `{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`,
						"-soak_per_iteration_max_acceptable_latency_ms", "30000", "-soak_overall_timeout_seconds", "60")
					if err != nil || code != 0 {
						t.Errorf("interop client: exit code %d, %v\n%s%s", code, err, stdout, stderr)
					}
				})
			}
		})
	}
}

// A case that a newer grpc-go brings must be run, or left out for a reason.
func TestInteropCasesAreAllKnown(t *testing.T) {
	t.Parallel()
	client, err := run.Package("interop-client", "google.golang.org/grpc/interop/client")
	if err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr, err := run.Output(nil, client, "-help")
	if err != nil {
		t.Fatal(err)
	}
	help := regexp.MustCompile(`(?m)^\s+([a-z][a-z0-9_]+) ?: `).FindAllStringSubmatch(string(stdout)+string(stderr), -1)
	if len(help) < 20 {
		t.Fatalf("found only %d cases in the help of the interop client:\n%s", len(help), stderr)
	}
	for _, m := range help {
		if c := m[1]; !slices.Contains(interopCases, c) && interopLeftOut[c] == "" {
			t.Errorf("the interop client has the case %q: run it, or say why not", c)
		}
	}
}

func startInteropServer(t *testing.T, bin string) string {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	p, err := run.Spawn(nil, bin, "-port", port)
	if err != nil {
		t.Fatal(err)
	}
	p.Explain(t)
	t.Cleanup(p.Kill)
	run.Eventually(t, "the interop server listens on port "+port, func() bool { return canConnect(addr) })
	return addr
}

func canConnect(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// freeAddr returns a loopback address on which nothing listens, for servers that cannot say which port they took.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
