package mesh

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"

	"github.com/toolway/toolway/internal/catalog"
	"github.com/toolway/toolway/internal/origin"
)

// adminHandler serves the operator's endpoints: /healthz (the process lives), /readyz (the catalog is complete and the mesh is not
// draining), /metrics, and /debug/pprof/ where asked for.
func (m *Mesh) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := m.readiness()
		code := http.StatusOK
		if r.Status != "ready" {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, r)
	})
	mux.Handle("GET /metrics", m.telemetry.handler())
	if m.config.Admin.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	// Loopback does not keep a web page out: a rebound name would let it read all this.
	own := origin.New(nil, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := own.Check(r); err != nil {
			writeJSON(w, http.StatusForbidden, map[string]string{"error": err.Error()})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// readiness is the body of /readyz.
type readiness struct {
	// Status is "ready", "starting" (some backend has not been read yet), "draining", or "refusing" (calls need a record, and the store that
	// keeps them is down).
	Status  string `json:"status"`
	Catalog string `json:"catalog"`
	// Store is there if there is a store. While it is down the mesh stays ready for calls that need none.
	Store    *storeReadiness    `json:"store,omitempty"`
	Backends []backendReadiness `json:"backends"`
	Findings []catalog.Finding  `json:"findings,omitempty"`
}

type backendReadiness struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Failover is the backend that takes over from this one; State is "covered" while it does since this one is down.
	Failover string `json:"failover,omitempty"`
	// Breaker is "open" or "half-open" while the backend is left alone, for too many failures.
	Breaker  string `json:"breaker,omitempty"`
	Services int    `json:"services"`
	Methods  int    `json:"methods"`
	// Lax names the checks of TLS that the operator has turned off for the backend.
	Lax []string `json:"lax,omitempty"`
}

// lax returns the checks of TLS that are turned off for a backend.
func (c *Config) lax(backend string) []string {
	var out []string
	for _, b := range c.Backends {
		if b.Name != backend || b.TLS == nil {
			continue
		}
		if b.TLS.AllowNoALPN {
			out = append(out, "allow_no_alpn")
		}
		if b.TLS.InsecureSkipVerify {
			out = append(out, "insecure_skip_verify")
		}
	}
	return out
}

func (m *Mesh) readiness() readiness {
	s := m.catalog.Snapshot()
	r := readiness{Status: "ready", Catalog: s.Version(), Findings: s.Findings(), Backends: []backendReadiness{}, Store: m.state.readiness()}
	for _, b := range s.Backends() {
		if b.Name == own {
			continue
		}
		of := backendReadiness{Name: b.Name, State: b.State.String(), Lax: m.config.lax(b.Name)}
		if of.Failover = b.Failover; b.Covered {
			of.State = "covered"
		}
		if state := m.breakers.State(b.Name); state != "closed" {
			of.Breaker = state
		}
		for _, svc := range s.Services() {
			if svc.Backend == b {
				of.Services++
				of.Methods += len(svc.Methods)
			}
		}
		r.Backends = append(r.Backends, of)
	}
	switch {
	case m.draining.Load():
		r.Status = "draining"
	case !m.complete.Load():
		r.Status = "starting"
	case r.Store != nil && r.Store.State == "down" && m.config.Audit.Required && m.state.audit != nil:
		r.Status = "refusing"
	}
	return r
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client is gone; there is nobody to tell
}
