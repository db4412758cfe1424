package call

import (
	"context"

	"github.com/toolway/toolway/internal/identity"
)

// Credentials are what a caller brings to say who it is: whatever its door carries, as it came.
type Credentials = identity.Credentials

// Authenticator says who brings credentials. The error is a status: UNAUTHENTICATED with an ErrorInfo whose reason says what is wrong with
// them, or UNAVAILABLE if that cannot be found out now. It is safe for concurrent use.
type Authenticator interface {
	Authenticate(ctx context.Context, c Credentials) (*identity.Principal, error)
}

type principalKey struct{}

// WithPrincipal returns ctx with the principal that a door has authenticated.
func WithPrincipal(ctx context.Context, p *identity.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the principal that a door has put there, or nil: nobody.
func PrincipalFrom(ctx context.Context) *identity.Principal {
	p, _ := ctx.Value(principalKey{}).(*identity.Principal)
	return p
}

type credentialsKey struct{}

// WithCredentials returns ctx with what a caller brought, for calls that are made later.
func WithCredentials(ctx context.Context, c Credentials) context.Context {
	return context.WithValue(ctx, credentialsKey{}, c)
}

// CredentialsFrom returns what WithCredentials has put there, or nothing.
func CredentialsFrom(ctx context.Context) Credentials {
	c, _ := ctx.Value(credentialsKey{}).(Credentials)
	return c
}

type refusalKey struct{}

// WithRefusal returns ctx with the error of an authenticator, for a call whose door has found its credentials bad: the chain refuses it with that error, so
// that it is observed and recorded as any other.
func WithRefusal(ctx context.Context, err error) context.Context {
	return context.WithValue(ctx, refusalKey{}, err)
}

// RefusalFrom returns the error that WithRefusal has put there, or nil.
func RefusalFrom(ctx context.Context) error {
	err, _ := ctx.Value(refusalKey{}).(error)
	return err
}
