package gateway

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/toolway/toolway/internal/buffer"
	"github.com/toolway/toolway/internal/transcode"
)

// requestWire builds the request message. Wire fragments merge, so the parts are appended one after the other: the body first, the query,
// and the path last, which thereby wins over the body.
func (g *Gateway) requestWire(x *exchange, m match) ([]byte, error) {
	var wire, body []byte
	var err error
	r, rc := x.r, http.NewResponseController(x.w)
	if !hasBody(r) {
		if read, _ := timeouts(r.Context()); read > 0 {
			_ = rc.SetReadDeadline(time.Time{}) // it would end a call that takes longer
		}
	} else {
		buf := buffer.Take(int(max(0, min(r.ContentLength, g.maxBody))) + bytes.MinRead)
		defer func() {
			*buf = body
			buffer.Give(buf)
		}()
		_ = rc.SetReadDeadline(time.Now().Add(g.stall)) // a recorder in a test has no connection
		if body, err = g.readBody(*buf, r); err != nil {
			return nil, err // the deadline stays, for the server reads what is left of the body before it answers
		}
		_ = rc.SetReadDeadline(time.Time{})
		if wire, err = m.appendBody(make([]byte, 0, len(body)+64), r.Header, body); err != nil {
			return nil, err
		}
	}
	wire, masked, err := m.appendQuery(wire, r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if m.updateMask != nil && !masked && len(body) > 0 {
		wire = appendMask(wire, m.updateMask, m.bodyField.Message(), body)
	}
	return m.appendPath(wire)
}

// appendBody appends what a body, which has been read to its end, sets.
func (r *route) appendBody(dst []byte, h http.Header, body []byte) ([]byte, error) {
	empty := isBlank(body)
	switch {
	case r.rawBody && r.bodyField != nil:
		field := protowire.AppendTag(nil, r.bodyField.Number(), protowire.BytesType)
		field = protowire.AppendBytes(field, appendHTTPBody(nil, h.Get("Content-Type"), body))
		return append(dst, within(r.bodyOuter, field)...), nil
	case r.rawBody:
		return appendHTTPBody(dst, h.Get("Content-Type"), body), nil
	case empty:
		return dst, nil
	case r.body == "":
		// Some clients send an empty object with every POST.
		if bytes.Equal(bytes.TrimSpace(body), []byte("{}")) {
			return dst, nil
		}
		return dst, refuse(http.StatusBadRequest, codes.InvalidArgument, "request body: this route takes none; send path and query parameters")
	}
	if err := needJSON(h, false); err != nil {
		return dst, err
	}
	switch {
	case r.bodyField != nil:
		return r.method.Request().AppendFieldWire(dst, r.body, body, transcode.ReadOptions{})
	}
	return r.method.Request().AppendWire(dst, body, transcode.ReadOptions{})
}

func isBlank(text []byte) bool {
	for _, c := range text {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return false
		}
	}
	return true
}

// appendPath appends what the path sets.
func (m match) appendPath(dst []byte) ([]byte, error) {
	for i, v := range m.template.vars {
		var err error
		values := m.values[i : i+1]
		if m.params[i].field.IsList() {
			values = strings.Split(values[0], ",")
		}
		if len(dst) > 0 { // a zero value is not written, and would leave what the body says
			dst = append(dst, m.params[i].zero...)
		}
		if dst, err = m.method.Request().AppendParam(dst, v.path, values); err != nil {
			return dst, err
		}
	}
	return dst, nil
}
