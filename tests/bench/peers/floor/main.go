// Command floor is what is left of the mesh's HTTP and MCP doors without the mesh: net/http, the transcoder, and grpc-go's client. It matches no routes,
// asks nobody who calls, has no deadline, log, metrics or audit; it takes requests for two methods of the probe, written as the load writes
// them, and answers every error with 500. What the mesh takes beyond it is the price of the mesh; what it takes itself, that of the libraries.
package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/toolway/toolway/internal/call"
	"github.com/toolway/toolway/internal/transcode"
	"github.com/toolway/toolway/tests/bench/peers/internal/peer"
	probev1 "github.com/toolway/toolway/tests/gen/probe/v1"
)

// method is one that the floor can call.
type method struct {
	name    string
	in, out *transcode.Message
}

// space is what one call is read into and answered from.
type space struct{ body, wire, reply, answer []byte }

type floor struct {
	conn   *grpc.ClientConn
	rest   map[string]*method // by path
	tools  map[string]*method
	spaces sync.Pool
}

func main() {
	debug.SetGCPercent(400) // what the mesh comes to with little in use
	peer.Main(func(ctx context.Context, backend string, l net.Listener) error {
		conn, err := grpc.NewClient("passthrough:///"+backend, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(call.Codec{}), grpc.MaxCallRecvMsgSize(16<<20)))
		if err != nil {
			return err
		}
		defer conn.Close()
		set := transcode.NewSet(protoregistry.GlobalTypes)
		of := func(name protoreflect.Name) *method {
			m := probev1.File_probe_v1_probe_proto.Services().ByName("Probe").Methods().ByName(name)
			return &method{"/probe.v1.Probe/" + string(name), set.Message(m.Input()), set.Message(m.Output())}
		}
		ask, search := of("Ask"), of("Search")
		return peer.HTTP(ctx, l, &floor{
			conn:   conn,
			rest:   map[string]*method{"/v1/probe/x:ask": ask, "/v1/probe/x:search": search},
			tools:  map[string]*method{"probe_ask": ask, "probe_search": search},
			spaces: sync.Pool{New: func() any { return &space{} }},
		})
	})
}

// ServeHTTP answers one call, of REST or of MCP.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, _ := f.spaces.Get().(*space)
	defer f.spaces.Put(s)
	answer, err := f.serve(r, s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer) // the caller has gone if it fails
}

func (f *floor) serve(r *http.Request, s *space) ([]byte, error) {
	body := bytes.NewBuffer(s.body[:0])
	_, err := body.ReadFrom(r.Body)
	if s.body = body.Bytes(); err != nil {
		return nil, err
	}
	m, arguments, mcp := f.rest[r.URL.Path], s.body, false
	if m == nil {
		if m, arguments = f.toolCall(s.body); m == nil {
			return nil, errors.New("neither a path nor a tool that the floor has")
		}
		mcp = true
	}
	if s.wire, err = m.in.AppendWire(s.wire[:0], arguments, transcode.ReadOptions{}); err != nil {
		return nil, err
	}
	// The client may use a request's bytes after the call has returned: they are not from the pool.
	request, reply := call.NewFrame(nil, bytes.Clone(s.wire)), call.Frame{}
	if err := f.conn.Invoke(r.Context(), m.name, request, &reply); err != nil {
		return nil, err
	}
	s.reply, err = m.out.AppendJSON(s.reply[:0], reply.Bytes(), transcode.WriteOptions{})
	reply.Release()
	if err != nil || !mcp {
		return s.reply, err
	}
	s.answer = append(s.answer[:0], `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":`...)
	s.answer = strconv.AppendQuote(s.answer, string(s.reply))
	s.answer = append(append(append(s.answer, `}],"structuredContent":`...), s.reply...), "}}"...)
	return s.answer, nil
}

// toolCall takes apart a call as the load writes it.
func (f *floor) toolCall(body []byte) (*method, []byte) {
	_, rest, _ := bytes.Cut(body, []byte(`"name":"`))
	name, rest, _ := bytes.Cut(rest, []byte(`","arguments":`))
	arguments, _, found := bytes.Cut(rest, []byte(`,"_meta"`))
	if !found {
		arguments = bytes.TrimSuffix(rest, []byte("}}"))
	}
	return f.tools[string(name)], arguments
}
