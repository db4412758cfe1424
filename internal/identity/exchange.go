package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolway/toolway/internal/jwks"
)

const (
	exchangeTimeout = 10 * time.Second
	maxAnswer       = 64 << 10
	// exchangeEarly is how long before its end a token is exchanged anew, so that it does not end on the way.
	exchangeEarly = 15 * time.Second
	// exchangeDefault is how long a token is kept whose answer does not say.
	exchangeDefault = time.Minute
)

// Exchanger gets credentials for a backend from an authorization server, in exchange for the caller's token (RFC 8693): the caller's token itself goes
// to that server alone. It is safe for concurrent use.
type Exchanger struct {
	conf   ExchangerConfig
	secret string
	key    *signingKey

	mu      sync.Mutex
	results map[[sha256.Size]byte]exchanged
	flights map[[sha256.Size]byte]*exchange
}

// ExchangerConfig says where and for what tokens are exchanged.
type ExchangerConfig struct {
	// Endpoint is the URL of the token endpoint. Required.
	Endpoint string
	// Audience and Resource name the backend to the server; at least one is required. Scope asks for scopes; "" for the server's choice.
	Audience, Resource, Scope string
	// ClientID is how the mesh is known there. Required.
	ClientID string
	// SecretFile holds the client's secret (client_secret_basic), KeyFile its private key in PEM (private_key_jwt, RFC 7523). One is required.
	SecretFile, KeyFile string
	// Client makes the requests. Default: jwks.NewClient(nil).
	Client *http.Client
	// Logger gets what callers are not told. Default slog.Default().
	Logger *slog.Logger
}

type exchanged struct {
	token string
	until time.Time
}

// exchange is one under way.
type exchange struct {
	done   chan struct{}
	result exchanged
	err    error
}

// NewExchanger returns an exchanger; it reads the secret or key, and asks nobody yet.
func NewExchanger(c ExchangerConfig) (*Exchanger, error) {
	if err := jwks.CheckURL(c.Endpoint); err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	switch {
	case c.Audience == "" && c.Resource == "":
		return nil, errors.New("audience or resource is missing: say for whom tokens are wanted")
	case c.ClientID == "":
		return nil, errors.New("client_id is missing: say how the authorization server knows the mesh")
	case (c.SecretFile == "") == (c.KeyFile == ""):
		return nil, errors.New("give one of secret_file and key_file, by which the mesh proves to be the client")
	}
	if c.Client == nil {
		c.Client = jwks.NewClient(nil)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	e := &Exchanger{conf: c, results: map[[sha256.Size]byte]exchanged{}, flights: map[[sha256.Size]byte]*exchange{}}
	if c.KeyFile != "" {
		var err error
		e.key, err = readKey(c.KeyFile)
		return e, err
	}
	text, err := os.ReadFile(c.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("read the client's secret: %w", err)
	}
	if e.secret = strings.TrimSpace(string(text)); e.secret == "" {
		return nil, fmt.Errorf("the client's secret %q is empty", c.SecretFile)
	}
	return e, nil
}

// The refusals of an exchange. Nothing has been sent to the backend.
var (
	errNoSubject = failure(codes.PermissionDenied, "NO_SUBJECT_TOKEN", "the backend needs a token in exchange for the caller's, and the caller brought none",
		"call with an access token", 0)
	errExchangeRefused = failure(codes.PermissionDenied, "EXCHANGE_REFUSED", "the authorization server gives no token for this caller and backend",
		"ask the operator of the authorization server; repeating the call does not help", 0)
	errExchangeDown = later("EXCHANGE_UNAVAILABLE", "the authorization server that gives tokens for the backend cannot be reached",
		"nothing was sent to the backend; call again in a moment", 5*time.Second)
)

// Exchange returns a token for the backend, for the caller whose token subject is, from before if that still holds. Of several calls at once
// for one caller only one asks the server. The error is a status.
func (e *Exchanger) Exchange(ctx context.Context, subject string) (string, error) {
	if subject == "" || strings.HasPrefix(subject, KeyPrefix) {
		return "", errNoSubject
	}
	key := sha256.Sum256([]byte(subject))
	now := time.Now()
	e.mu.Lock()
	if r, ok := e.results[key]; ok && now.Before(r.until) {
		e.mu.Unlock()
		return r.token, nil
	}
	flight := e.flights[key]
	if flight != nil {
		e.mu.Unlock()
		select {
		case <-flight.done:
			return flight.result.token, flight.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	flight = &exchange{done: make(chan struct{}), err: errExchangeDown}
	e.flights[key] = flight
	e.mu.Unlock()

	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.flights, key)
		if flight.err == nil && now.Before(flight.result.until) {
			e.keep(key, flight.result, now)
		}
		close(flight.done)
	}()
	// Others wait for it too: the first one's end must not be theirs.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTimeout)
	defer cancel()
	flight.result, flight.err = e.ask(asking, subject, now)
	return flight.result.token, flight.err
}

// keep remembers a token, with e.mu held.
func (e *Exchanger) keep(key [sha256.Size]byte, r exchanged, now time.Time) {
	if len(e.results) >= maxCached {
		for k, old := range e.results {
			if !now.Before(old.until) || len(e.results) >= maxCached {
				delete(e.results, k)
			}
		}
	}
	e.results[key] = r
}

// ask makes one request to the server.
func (e *Exchanger) ask(ctx context.Context, subject string, now time.Time) (exchanged, error) {
	form := url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token":        {subject},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:access_token"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	}
	for name, value := range map[string]string{"audience": e.conf.Audience, "resource": e.conf.Resource, "scope": e.conf.Scope} {
		if value != "" {
			form.Set(name, value)
		}
	}
	if e.key != nil {
		assertion, err := e.assertion(now)
		if err != nil {
			return exchanged{}, err
		}
		form.Set("client_id", e.conf.ClientID)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.conf.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return exchanged{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if e.key == nil {
		req.SetBasicAuth(url.QueryEscape(e.conf.ClientID), url.QueryEscape(e.secret)) // RFC 6749, section 2.3.1
	}
	res, err := e.conf.Client.Do(req)
	if err != nil {
		return exchanged{}, e.fail(ctx, errExchangeDown, err.Error())
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return exchanged{}, e.fail(ctx, errExchangeDown, err.Error())
	}
	return e.read(ctx, res.StatusCode, body, now)
}

// read reads the server's answer.
func (e *Exchanger) read(ctx context.Context, code int, body []byte, now time.Time) (exchanged, error) {
	var answer struct {
		Token     string  `json:"access_token"`
		Type      string  `json:"token_type"`
		ExpiresIn float64 `json:"expires_in"`
		Error     string  `json:"error"`
	}
	err := json.Unmarshal(body, &answer)
	switch {
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return exchanged{}, e.fail(ctx, errExchangeDown, "status "+strconv.Itoa(code))
	case code != http.StatusOK:
		return exchanged{}, e.fail(ctx, errExchangeRefused, fmt.Sprintf("status %d, error %.100q", code, answer.Error))
	case err != nil:
		return exchanged{}, e.fail(ctx, errExchangeDown, "the answer is not JSON")
	case bearer("Bearer "+answer.Token) == "" || !strings.EqualFold(answer.Type, "Bearer") && !strings.EqualFold(answer.Type, "N_A"):
		return exchanged{}, e.fail(ctx, errExchangeRefused, fmt.Sprintf("the answer has no bearer token, but type %.100q", answer.Type))
	}
	holds := exchangeDefault
	if answer.ExpiresIn > 0 {
		holds = time.Duration(min(answer.ExpiresIn, 24*3600) * float64(time.Second))
	}
	return exchanged{answer.Token, now.Add(holds - exchangeEarly)}, nil
}

// fail logs why an exchange failed, and returns what the caller is told.
func (e *Exchanger) fail(ctx context.Context, told error, why string) error {
	e.conf.Logger.LogAttrs(ctx, slog.LevelWarn, "token exchange failed", slog.String("endpoint", e.conf.Endpoint), slog.String("audience", e.conf.Audience), slog.String("why", why))
	return told
}

// assertion proves to be the client (RFC 7523, section 3).
func (e *Exchanger) assertion(now time.Time) (string, error) {
	claims := appendClaim([]byte{'{'}, "iss", e.conf.ClientID)
	claims = appendClaim(append(claims, ','), "sub", e.conf.ClientID)
	claims = appendClaim(append(claims, ','), "aud", e.conf.Endpoint)
	claims = appendClaim(append(claims, ','), "jti", rand.Text())
	claims = strconv.AppendInt(append(claims, `,"iat":`...), now.Unix(), 10)
	claims = strconv.AppendInt(append(claims, `,"exp":`...), now.Add(time.Minute).Unix(), 10)
	return e.key.compact("JWT", append(claims, '}'))
}
