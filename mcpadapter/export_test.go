package mcpadapter

import (
	"context"
	"net/http"
	"time"
)

// PatientWatch makes subscriptions wait for the backend's answer for as long as a busy machine may need.
func PatientWatch(c *Config) { c.watchAnswer = time.Minute }

// SDKOnly turns the fast path off.
func SDKOnly(c *Config) { c.sdkOnly = true }

// TakesFastPath says whether a message over HTTP is answered without the SDK.
func (a *Adapter) TakesFastPath(h http.Header, body []byte) bool {
	var q quickRequest
	e, isEndpoint := a.http.(*endpoint)
	return q.scan(body) && isEndpoint && e.quickHeader(&http.Request{Header: h}, &q)
}

// FitsFastPath says whether a message may be answered without the SDK, and whether it is JSON at all as the scanner reads it.
func FitsFastPath(body []byte) (fits, isJSON bool) {
	fits = new(quickRequest).scan(body)
	s := scanner{data: body}
	_, ok := s.value()
	return fits, ok && s.end()
}

// Listed returns the encoded tools that the caller in ctx is shown.
func Listed(ctx context.Context, a *Adapter) []byte { return a.currentListing(ctx).encoded }

// StripInvisible takes out of JSON text what nobody sees.
func StripInvisible(text []byte) ([]byte, int) { return stripInvisible(text) }
