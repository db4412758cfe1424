package mesh

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/identity"
	"github.com/toolway/toolway/internal/origin"
)

// keysPath is where backends find the keys of minted credentials.
const keysPath = "/.well-known/jwks.json"

// openAuth makes the authenticator that the configuration asks for.
func (m *Mesh) openAuth() error {
	if !m.config.Auth.asks() {
		return nil
	}
	conf, err := m.config.Auth.open()
	if err != nil {
		return err
	}
	conf.Logger = m.log
	if m.auth, err = identity.New(conf); err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	return nil
}

// authenticator is the one that doors and the chain use; nil if nobody is asked.
func (m *Mesh) authenticator() call.Authenticator {
	if m.auth == nil {
		return nil
	}
	return m.auth
}

// stdioContext returns the context of the caller on standard input and output. Each call is authenticated anew, since a token ends; the principal that
// is known now decides what is listed.
func (m *Mesh) stdioContext(ctx context.Context) context.Context {
	if m.auth == nil {
		return call.WithPrincipal(ctx, identity.Anonymous)
	}
	credentials := m.stdio
	credentials.Environment = true
	ctx = call.WithCredentials(ctx, credentials)
	p, err := m.auth.Authenticate(ctx, credentials)
	if err != nil {
		reason, _ := identity.Reason(err)
		m.log.Warn("the caller is not known, so its calls are refused: give the server's process TOOLWAY_TOKEN or TOOLWAY_API_KEY in its environment", "reason", reason)
		return ctx
	}
	return call.WithPrincipal(ctx, p)
}

// wellKnown serves what clients and backends need before they have credentials, and says whether the request was for it.
func (m *Mesh) wellKnown(resource *identity.Resource, origins *origin.Policy) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/.well-known/") {
			return false
		}
		var body []byte
		path, isMetadata := strings.CutPrefix(r.URL.Path, identity.MetadataPath)
		switch {
		case isMetadata && (path == "" || path == "/mcp" || strings.HasPrefix(path, "/mcp/")):
			body = resource.Metadata(r, path)
		case r.URL.Path == keysPath && m.minter != nil:
			var err error
			if body, err = m.minter.JWKS(); err != nil {
				m.log.Error("the signing keys cannot be published", "error", err)
				http.Error(w, "the keys cannot be read now", http.StatusInternalServerError)
				return true
			}
		}
		if body == nil {
			return false // a backend may have routes there
		}
		foreign, err := origins.Check(r)
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		if origins.Foreign() {
			h.Add("Vary", "Origin")
		}
		if err != nil {
			writeJSON(w, http.StatusForbidden, map[string]string{"error": err.Error()})
			return true
		}
		if foreign != "" {
			h.Set("Access-Control-Allow-Origin", foreign)
		}
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			if foreign != "" {
				h.Set("Access-Control-Allow-Methods", "GET, HEAD")
				h.Set("Access-Control-Allow-Headers", "Accept, Mcp-Protocol-Version")
				h.Set("Access-Control-Max-Age", "600")
			}
			w.WriteHeader(http.StatusNoContent)
			return true
		default:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "only GET is offered here"})
			return true
		}
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "max-age=300")
		_, _ = w.Write(body) // a client that has gone needs no answer
		return true
	}
}
