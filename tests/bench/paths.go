package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

// shape is a kind of call.
type shape struct {
	name   string
	stream bool

	grpc func(ctx context.Context, c probev1.ProbeClient) error
	// rest is the path and body of the call by its google.api.http rule, tool and body the same for MCP.
	rest, body string
	tool       string
	// mark is in each reply, count times if it is not 0.
	mark  string
	count int
	// seen, if not nil, is shown each reply.
	seen func(reply []byte)
}

const (
	mediumEntries, largeEntries = 50, 2400
	streamMessages              = 1000
	streamText                  = "one of a thousand messages, as long as a line of a log or a step of somebody's progress usually is."
)

var shapes = []shape{
	{
		name: "small call", rest: "POST /v1/probe/x:ask", body: `{"text":"hello, small call","number":"12345678901"}`, tool: "probe_ask", mark: "hello, small call",
		grpc: func(ctx context.Context, c probev1.ProbeClient) error {
			_, err := c.Ask(ctx, &probev1.AskRequest{Text: "hello, small call", Number: 12345678901})
			return err
		},
	},
	search("21 KB reply", mediumEntries),
	search("1 MB reply", largeEntries),
	{
		name: "server stream of 1,000 messages", stream: true, rest: "GET /v1/probe/x/events?plan.count=1000&text=" + strings.ReplaceAll(streamText, " ", "%20"),
		mark: `"text"`, count: streamMessages,
		grpc: func(ctx context.Context, c probev1.ProbeClient) error {
			s, err := c.Watch(ctx, &probev1.WatchRequest{Text: streamText, Plan: &probev1.Plan{Count: streamMessages}})
			if err != nil {
				return err
			}
			for n := 0; ; n++ {
				if _, err := s.Recv(); errors.Is(err, io.EOF) && n == streamMessages {
					return nil
				} else if err != nil {
					return fmt.Errorf("after %d messages: %w", n, err)
				}
			}
		},
	},
}

func search(name string, entries int32) shape {
	return shape{
		name: name, rest: "POST /v1/probe/x:search", body: fmt.Sprintf(`{"count":%d}`, entries), tool: "probe_search", mark: "cGFnZS0y",
		grpc: func(ctx context.Context, c probev1.ProbeClient) error {
			r, err := c.Search(ctx, &probev1.SearchRequest{Count: entries})
			if err == nil && len(r.GetEntries()) != int(entries) {
				err = fmt.Errorf("%d entries, want %d", len(r.GetEntries()), entries)
			}
			return err
		},
	}
}

// overGRPC calls with generated code over one connection that all callers share, as clients do.
func overGRPC(addr string) (open func(s shape) func() (caller, error), done func(), err error) {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, nil, err
	}
	client := probev1.NewProbeClient(cc)
	return func(s shape) func() (caller, error) {
		return func() (caller, error) {
			return caller{func(ctx context.Context) error { return s.grpc(ctx, client) }, func() {}}, nil
		}
	}, func() { _ = cc.Close() }, nil
}

// overREST calls by the google.api.http rules; streams are asked for as accept says, and not at all if it is empty.
func overREST(addr, accept string) func(s shape) func() (caller, error) {
	return func(s shape) func() (caller, error) {
		if s.stream && accept == "" {
			return nil
		}
		h := "Content-Type: application/json\r\n"
		if s.stream {
			h = "Accept: " + accept + "\r\n"
		}
		return overHTTP(addr, s.rest, h, s.body, s)
	}
}

// overMCP calls tools; version decides about headers and _meta.
func overMCP(addr, where, version string) func(s shape) func() (caller, error) {
	return func(s shape) func() (caller, error) {
		if s.tool == "" {
			return nil
		}
		h := "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: " + version + "\r\n"
		meta := ""
		if version >= "2026" {
			h += "Mcp-Method: tools/call\r\nMcp-Name: " + s.tool + "\r\n"
			meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientCapabilities":{}}`
		}
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + s.tool + `","arguments":` + s.body + meta + `}}`
		return overHTTP(addr, "POST "+where, h, body, s)
	}
}

// overHTTP sends the same request again and again, over a connection of each caller's own; after an answer that says that its connection closes, as
// the mesh's event streams do, over another one. The caller reads the reply itself: net/http's client has two goroutines for each connection, whose
// work would be most of what is measured.
func overHTTP(addr, line, header, body string, s shape) func() (caller, error) {
	request := fmt.Appendf(nil, "%s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", line, addr, header, len(body), body)
	return func() (caller, error) {
		conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
		if err != nil {
			return caller{}, err
		}
		in := bufio.NewReaderSize(conn, 64<<10)
		var reply bytes.Buffer
		used := false // conn serves no further request
		return caller{func(ctx context.Context) error {
			if used {
				_ = conn.Close()
				next, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				if err != nil {
					return err
				}
				conn, used = next, false
				in.Reset(conn)
			}
			if deadline, ok := ctx.Deadline(); ok {
				if err := conn.SetDeadline(deadline); err != nil {
					return err
				}
			}
			if _, err := conn.Write(request); err != nil {
				return err
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			used = resp.Close
			reply.Reset()
			_, err = reply.ReadFrom(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				return err
			}
			return s.check(resp.Status, reply.Bytes())
		}, func() { _ = conn.Close() }}, nil
	}
}

func (s shape) check(status string, reply []byte) error {
	ok := strings.HasPrefix(status, "200") && !bytes.Contains(reply[:min(len(reply), 300)], []byte(`"isError":true`))
	if s.count > 0 {
		ok = ok && bytes.Count(reply, []byte(s.mark)) == s.count
	} else {
		ok = ok && bytes.Contains(reply, []byte(s.mark))
	}
	if s.seen != nil {
		s.seen(reply)
	}
	if !ok {
		return fmt.Errorf("%s, %d bytes without %d of %s: %.300s", status, len(reply), max(1, s.count), s.mark, reply)
	}
	return nil
}
