package incidents_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	incidentsv1 "github.com/toolway/toolway/gen/agentops/incidents/v1"
	"github.com/toolway/toolway/interceptors/backendauth"
	"github.com/toolway/toolway/services/incidents"
)

// A diagnosis is its tenant's: for everybody else there is none. That a mesh mints such credentials is shown in tests/demo.
func TestTenants(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := backendauth.New(backendauth.Config{Issuer: "mesh", Audience: "incidents", Keys: public})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(verifier.Close)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, (&jose.SignerOptions{}).WithType("toolway+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	as := func(tenant, method string) context.Context {
		t.Helper()
		claims, err := json.Marshal(map[string]any{
			"iss": "mesh", "aud": "incidents", "sub": "key:" + tenant, "tenant": tenant, "method": "/agentops.incidents.v1.IncidentService/" + method,
			"jti": "1", "call": "1", "iat": time.Now().Unix(), "exp": time.Now().Add(30 * time.Second).Unix(),
		})
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+token)
	}
	s := start(t, t.TempDir(), startTools(t).conn, incidents.Options{}, grpc.ChainUnaryInterceptor(verifier.Unary), grpc.ChainStreamInterceptor(verifier.Stream))

	ours, err := s.StartDiagnosis(as("acme", "StartDiagnosis"), request())
	if err != nil {
		t.Fatal(err)
	}
	if ours.GetPrincipal() != "key:acme" {
		t.Errorf("principal %q", ours.GetPrincipal())
	}
	// The same incident of another tenant is another one.
	theirs, err := s.StartDiagnosis(as("umbrella", "StartDiagnosis"), request())
	if err != nil || theirs.GetName() == ours.GetName() {
		t.Fatalf("the other tenant's: %v, %v", theirs, err)
	}
	for tenant, want := range map[string]codes.Code{"acme": codes.OK, "umbrella": codes.NotFound} {
		_, err := s.GetDiagnosis(as(tenant, "GetDiagnosis"), &incidentsv1.GetDiagnosisRequest{Name: ours.GetName()})
		wantCode(t, err, want)
		stream, err := s.WatchDiagnosis(as(tenant, "WatchDiagnosis"), &incidentsv1.WatchDiagnosisRequest{Name: ours.GetName()})
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, want)
		list, err := s.ListDiagnoses(as(tenant, "ListDiagnoses"), &incidentsv1.ListDiagnosesRequest{})
		if err != nil || len(list.GetDiagnoses()) != 1 || (list.GetDiagnoses()[0].GetName() == ours.GetName()) != (want == codes.OK) {
			t.Errorf("list of %s: %v, %v", tenant, list, err)
		}
	}
	_, err = s.CancelDiagnosis(as("umbrella", "CancelDiagnosis"), &incidentsv1.CancelDiagnosisRequest{Name: ours.GetName()})
	wantCode(t, err, codes.NotFound)
	_, err = s.CancelDiagnosis(as("acme", "CancelDiagnosis"), &incidentsv1.CancelDiagnosisRequest{Name: ours.GetName()})
	wantCode(t, err, codes.OK)
	_, err = s.GetDiagnosis(within(t), &incidentsv1.GetDiagnosisRequest{Name: ours.GetName()})
	wantCode(t, err, codes.Unauthenticated)
	if !strings.Contains(err.Error(), "credential") {
		t.Errorf("error: %v", err)
	}
}
