package identity

import (
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// domain is the google.rpc.ErrorInfo domain of the mesh's own errors, as call.Domain.
const domain = "toolway"

// Reasons are the ErrorInfo reasons of refused credentials.
const (
	MissingCredentials   = "MISSING_CREDENTIALS"
	MalformedCredentials = "MALFORMED_CREDENTIALS"
	AmbiguousCredentials = "AMBIGUOUS_CREDENTIALS"
	InvalidToken         = "INVALID_TOKEN"
	UnsupportedAlgorithm = "UNSUPPORTED_ALGORITHM"
	UnknownIssuer        = "UNKNOWN_ISSUER"
	UnknownKey           = "UNKNOWN_KEY"
	WrongAudience        = "WRONG_AUDIENCE"
	WrongTokenType       = "WRONG_TOKEN_TYPE"
	TokenExpired         = "TOKEN_EXPIRED"
	TokenNotYetValid     = "TOKEN_NOT_YET_VALID"
	SenderConstrained    = "SENDER_CONSTRAINED"
	NoTenant             = "NO_TENANT"
	UnknownAPIKey        = "UNKNOWN_API_KEY"
	APIKeyExpired        = "API_KEY_EXPIRED"
	UnknownCertificate   = "UNKNOWN_CERTIFICATE"
	// ProviderUnavailable and AuthenticationBusy are UNAVAILABLE: nothing is known of the credentials yet.
	ProviderUnavailable = "IDENTITY_PROVIDER_UNAVAILABLE"
	AuthenticationBusy  = "AUTHENTICATION_BUSY"
	// InsufficientScope is PERMISSION_DENIED: the metadata "scopes" names all scopes that the method needs, separated by spaces.
	InsufficientScope = "INSUFFICIENT_SCOPE"
)

// refuse returns UNAUTHENTICATED for a reason.
func refuse(reason, message, hint string) error {
	return failure(codes.Unauthenticated, reason, message, hint, 0)
}

// later returns UNAVAILABLE for a reason that passes.
func later(reason, message, hint string, after time.Duration) error {
	return failure(codes.Unavailable, reason, message, hint, after)
}

func failure(code codes.Code, reason, message, hint string, after time.Duration) error {
	st := status.New(code, message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: map[string]string{"hint": hint}}}
	if after > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return st.Err()
}

// Reason returns the ErrorInfo of an error of the mesh's own: its reason and metadata; "" if there is none.
func Reason(err error) (reason string, metadata map[string]string) {
	var typed interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &typed) {
		return "", nil
	}
	for _, d := range typed.GRPCStatus().Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}

// The refusals that say nothing about one caller, made once.
var (
	errMissing = refuse(MissingCredentials, "the call brings no credentials",
		"send an access token as authorization: Bearer TOKEN, or an API key as x-api-key")
	errMissingEnvironment = refuse(MissingCredentials, "the call brings no credentials",
		"start the server's process with an access token in TOOLWAY_TOKEN, or an API key in TOOLWAY_API_KEY, in its environment")
	errMalformed = refuse(MalformedCredentials, "the credentials are not in a form that is taken here",
		"send one access token as authorization: Bearer TOKEN, or one API key as x-api-key")
	errAmbiguous = refuse(AmbiguousCredentials, "the credentials name different callers",
		"send the credentials of one caller alone")
	errNoTokens      = refuse(UnknownIssuer, "access tokens are not taken here", "use another kind of credentials; ask the operator which")
	errInvalid       = refuse(InvalidToken, "the access token is not valid", "get a new token from the issuer")
	errAlgorithm     = refuse(UnsupportedAlgorithm, "the access token is signed with an algorithm that is not taken here", "have the issuer sign with an asymmetric algorithm that the operator allows")
	errUnknownIssuer = refuse(UnknownIssuer, "the access token's issuer is not trusted here", "get a token from an issuer that the mesh names in its protected resource metadata")
	errUnknownKey    = refuse(UnknownKey, "the access token is signed with a key that its issuer does not publish", "get a new token from the issuer")
	errAudience      = refuse(WrongAudience, "the access token is not for this mesh", "ask the issuer for a token with this mesh as its resource or audience")
	errType          = refuse(WrongTokenType, "the token is not an access token", "send an access token, not another token of the issuer")
	errExpired       = refuse(TokenExpired, "the access token has expired", "get a new token from the issuer")
	errNotYet        = refuse(TokenNotYetValid, "the access token is not valid yet", "wait, and check the clocks of issuer and mesh")
	errConstrained   = refuse(SenderConstrained, "the access token is bound to a key or certificate that the caller has not proved to hold", "call with the client certificate that the token is bound to; DPoP is not taken here")
	errNoTenant      = refuse(NoTenant, "the access token names no tenant", "get a token that says which tenant it is for")
	errUnknownAPIKey = refuse(UnknownAPIKey, "the API key is not known", "check the key, or ask the operator for one")
	errAPIKeyExpired = refuse(APIKeyExpired, "the API key has expired", "ask the operator for a new one")
	errCertificate   = refuse(UnknownCertificate, "the client certificate names no caller that is known", "ask the operator to map the certificate's URI or DNS name, or send other credentials")
	errBusy          = later(AuthenticationBusy, "too many credentials are being verified", "call again in a moment", time.Second)
	errProvider      = later(ProviderUnavailable, "the keys of the access token's issuer cannot be read now", "call again in a moment; the token may be good", 5*time.Second)
)
