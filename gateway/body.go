package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// readBody returns the whole request body, decompressed and bounded, appended to dst.
func (g *Gateway) readBody(dst []byte, r *http.Request) ([]byte, error) {
	if r.ContentLength > g.maxBody {
		return dst, g.tooLarge()
	}
	src, err := g.bodyReader(r)
	if err != nil {
		return dst, err
	}
	buf := bytes.NewBuffer(dst)
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(src, g.maxBody+1))
	if err != nil {
		return buf.Bytes(), bodyError(err)
	}
	if n > g.maxBody {
		return buf.Bytes(), g.tooLarge()
	}
	return buf.Bytes(), nil
}

// bodyReader undoes the content coding.
func (g *Gateway) bodyReader(r *http.Request) (io.Reader, error) {
	switch coding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); coding {
	case "", "identity":
		return r.Body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, bodyError(err)
		}
		return z, nil
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			fmt.Sprintf("content encoding %q: not supported; send the body as it is or with gzip", coding)).with("Accept-Encoding", "gzip")
	}
}

func (g *Gateway) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, fmt.Sprintf("request body: longer than the limit of %d bytes", g.maxBody))
}

func bodyError(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return refuse(http.StatusBadRequest, codes.InvalidArgument, "request body: not valid gzip, which its Content-Encoding says it is")
	}
	return refuse(http.StatusBadRequest, codes.InvalidArgument, "request body: it ended early or could not be read")
}

// needJSON refuses bodies that do not say that they are JSON. A browser sends other types across sites without asking first.
func needJSON(h http.Header, lines bool) error {
	value := h.Get("Content-Type")
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
