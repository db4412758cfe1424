package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// readBody returns the whole request body, decompressed and bounded, in dst, which is empty and may have room.
func (g *Gateway) readBody(dst []byte, r *http.Request) ([]byte, error) {
	if r.ContentLength > g.maxBody {
		return dst, g.tooLarge()
	}
	src, err := g.bodyReader(r)
	if err != nil {
		return dst, err
	}
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, bytes.MinRead)
		}
		n, err := src.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case int64(len(dst)) > g.maxBody:
			return dst, g.tooLarge()
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, g.bodyError(err)
		}
	}
}

// bodyReader undoes the content coding.
func (g *Gateway) bodyReader(r *http.Request) (io.Reader, error) {
	switch coding := strings.ToLower(strings.TrimSpace(header(r, "Content-Encoding"))); coding {
	case "", "identity":
		return r.Body, nil
	case "gzip", "x-gzip":
		src := &source{Reader: r.Body}
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, g.bodyError(src.blame())
		}
		return &gunzip{z, src}, nil
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			fmt.Sprintf("content encoding %q: not supported; send the body as it is or with gzip", coding)).with("Accept-Encoding", "gzip")
	}
}

func (g *Gateway) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, fmt.Sprintf("request body: longer than the limit of %d bytes", g.maxBody))
}

var errGzip = errors.New("not valid gzip")

// source remembers whether it was the reading of the body that failed, not what the body holds.
type source struct {
	io.Reader
	err error
}

// Read reads from the body.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// blame returns why a decompressor has failed.
func (s *source) blame() error {
	if s.err != nil {
		return s.err
	}
	return errGzip
}

type gunzip struct {
	z   *gzip.Reader
	src *source
}

// Read reads what was compressed.
func (g *gunzip) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = g.src.blame()
	}
	return n, err
}

func (g *Gateway) bodyError(err error) error {
	switch {
	case errors.Is(err, errGzip):
		return refuse(http.StatusBadRequest, codes.InvalidArgument, "request body: not valid gzip, which its Content-Encoding says it is")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, codes.DeadlineExceeded, fmt.Sprintf("request body: it did not come to its end within %v", g.stall))
	}
	return refuse(http.StatusBadRequest, codes.InvalidArgument, "request body: it ended early or could not be read")
}

// needJSON refuses bodies that do not say that they are JSON. A browser sends other types across sites without asking first.
func needJSON(h http.Header, lines bool) error {
	value := h.Get("Content-Type")
	if value == "application/json" { // nearly always
		return nil
	}
	typ, params, err := mime.ParseMediaType(value)
	want := "application/json"
	ok := typ == want || strings.HasPrefix(typ, "application/") && strings.HasSuffix(typ, "+json")
	if lines {
		want = ndjson
		ok = ok || typ == ndjson || typ == "application/jsonl"
	}
	if charset := params["charset"]; err != nil || !ok || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument, fmt.Sprintf("content type %q: not supported; send %q", value, want))
	}
	return nil
}

// speaksGRPC refuses gRPC's own framing and gRPC-Web's, which are no business of this door.
func speaksGRPC(r *http.Request) error {
	value := header(r, "Content-Type")
	if !strings.HasPrefix(strings.ToLower(value), "application/grpc") {
		return nil
	}
	return refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument,
		fmt.Sprintf("content type %q: this is the HTTP door; gRPC has an address of its own (--grpc-addr, grpc.addr)", value))
}

// hasBody says whether the request brings a body, which may turn out to be empty.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// appendHTTPBody appends a google.api.HttpBody.
func appendHTTPBody(dst []byte, contentType string, data []byte) []byte {
	if contentType != "" {
		dst = protowire.AppendString(protowire.AppendTag(dst, 1, protowire.BytesType), contentType)
	}
	if len(data) > 0 {
		dst = protowire.AppendBytes(protowire.AppendTag(dst, 2, protowire.BytesType), data)
	}
	return dst
}

// httpBody takes a google.api.HttpBody apart. If it is a field of the message, path leads to it, outermost number first.
func httpBody(wire []byte, path []protowire.Number) (contentType string, data []byte, ok bool) {
	for len(wire) > 0 {
		n, typ, l := protowire.ConsumeTag(wire)
		if l < 0 {
			return "", nil, false
		}
		wire = wire[l:]
		if typ != protowire.BytesType {
			if l = protowire.ConsumeFieldValue(n, typ, wire); l < 0 {
				return "", nil, false
			}
			wire = wire[l:]
			continue
		}
		value, l := protowire.ConsumeBytes(wire)
		if l < 0 {
			return "", nil, false
		}
		wire = wire[l:]
		switch {
		case len(path) > 0 && path[0] == n:
			t, d, ok := httpBody(value, path[1:])
			if !ok {
				return "", nil, false
			}
			if t != "" {
				contentType = t
			}
			if d != nil {
				data = d
			}
		case len(path) == 0 && n == 1:
			contentType = string(value)
		case len(path) == 0 && n == 2:
			data = value
		}
	}
	return contentType, data, true
}
