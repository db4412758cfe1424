package evolution_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// parties are the log service as it was and as it is, each behind a mesh that knows its contract.
type parties struct {
	first     contract
	oldServer *oldServer
	before    map[string]*doors // by "old server", "new server"
}

func meet(t *testing.T) *parties {
	t.Helper()
	p := &parties{first: first(t)}
	p.oldServer = startOld(t, map[string][]byte{
		searchMethod: p.first.wire(t, "SearchLogsResponse", `{"entries":[{"time":"`+recent()+`","message":"from before","fields":{"service":"shop"},"severity":3}],"totalSize":1}`),
		ingestMethod: p.first.wire(t, "IngestLogsResponse", `{"accepted":"1","rejected":"1","rejections":[{"index":"1","reason":"too long","code":"REJECTION_CODE_TOO_LARGE"}]}`),
	})
	p.before = map[string]*doors{
		"old server": open(t, "--backend", "logs="+p.oldServer.addr, "--descriptors", "logs="+p.first.write(t)),
		"new server": open(t, "--backend", "logs="+startNew(t)),
	}
	// The new server has one entry, whose address is taken out (redactions), and refuses one for a reason that came later.
	batch := today().wire(t, "IngestLogsRequest", `{"entries":[{"message":"from now to a@example.com","fields":{"service":"shop"}},{"message":"old","time":"2020-01-01T00:00:00Z"}]}`)
	p.before["new server"].ingest(t, batch)
	return p
}

// tools are what the contracts' tools are called: the first one did not say.
var tools = map[string][2]string{"old server": {"log_search_logs", "log_ingest_logs"}, "new server": {"logs_search", "logs_ingest"}}

// TestOldAndNew has each client, before each server, through each door: what both know gets through, whatever else there is.
func TestOldAndNew(t *testing.T) {
	t.Parallel()
	p := meet(t)
	for server, d := range p.before {
		for client, c := range map[string]contract{"old client": p.first, "new client": today()} {
			said := map[string]string{"old server": "from before", "new server": "from now to [REDACTED:email]"}[server]
			check := func(door string, search, ingest protoreflect.Message) {
				t.Helper()
				if got := field(t, search, "entries", 0, "message").String(); got != said {
					t.Errorf("%s, %s, %s: message = %q, want %q", client, server, door, got, said)
				}
				if accepted := field(t, ingest, "accepted").Int(); accepted != 1 || field(t, ingest, "rejections", 0, "index").Int() != 1 {
					t.Errorf("%s, %s, %s: summary = %v, want one of each", client, server, door, ingest)
				}
			}
			t.Run(client+" before "+server, func(t *testing.T) {
				batch := `{"entries":[{"message":"again","fields":{"service":"other"}},{"message":"old","time":"2020-01-01T00:00:00Z"}]}`
				const search = `{"query":"service:shop"}`
				check("gRPC", c.read(t, "SearchLogsResponse", d.unary(t, searchMethod, c.wire(t, "SearchLogsRequest", search))),
					c.read(t, "IngestLogsResponse", d.ingest(t, c.wire(t, "IngestLogsRequest", batch))))
				found := d.byJSON(t, searchMethod, tools[server][0], search)
				// The HTTP door takes a client stream as lines, which for one message is its JSON; MCP as a list.
				_, stored := d.post(t, ingestMethod, batch)
				storedByAgent, bad := d.call(t, tools[server][1], `{"messages":[`+batch+`]}`)
				if bad != "" {
					t.Fatal(bad)
				}
				for door, ingested := range map[string]string{"REST": stored, "MCP": storedByAgent} {
					check(door, lenient(t, c, "SearchLogsResponse", found[door]), lenient(t, c, "IngestLogsResponse", ingested))
				}
			})
		}
	}
}

// lenient reads JSON as a client has to that wants to outlive changes: it lets be what it does not know.
func lenient(t *testing.T, c contract, name protoreflect.Name, text string) protoreflect.Message {
	t.Helper()
	m := c.empty(name)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// A field that was added: programs that do not know it keep it in binary, and must be told to let it be in JSON.
func TestFieldAdded(t *testing.T) {
	t.Parallel()
	p := meet(t)
	d := p.before["new server"]
	wire := d.unary(t, searchMethod, p.first.wire(t, "SearchLogsRequest", `{"query":"service:shop"}`))
	old := p.first.read(t, "SearchLogsResponse", wire)
	entry := field(t, old, "entries", 0).Message()
	if number, _, _ := protowire.ConsumeTag(entry.GetUnknown()); number != 5 {
		t.Errorf("old client has unknown %x, want field 5", entry.GetUnknown())
	}
	if again := today().read(t, "SearchLogsResponse", marshal(t, old)); field(t, again, "entries", 0, "redactions").Int() != 1 {
		t.Errorf("passed on by the old client: %v, want redactions still", again)
	}
	for door, text := range d.byJSON(t, searchMethod, "logs_search", `{"query":"service:shop"}`) {
		err := protojson.Unmarshal([]byte(text), p.first.empty("SearchLogsResponse"))
		if err == nil || !strings.Contains(err.Error(), `unknown field "redactions"`) {
			t.Errorf("%s: a strict old client reads %s: %v, want that it does not know redactions", door, text, err)
		}
		if again := lenient(t, p.first, "SearchLogsResponse", text); len(again.GetUnknown()) > 0 || strings.Contains(fmt.Sprint(again), "redactions") {
			t.Errorf("%s: a lenient old client has %v, want that the field is lost", door, again)
		}
	}
	// The other way: what the old server does not know passes in binary, and is refused in JSON, with its name.
	d = p.before["old server"]
	sent := today().wire(t, "IngestLogsRequest", `{"entries":[{"message":"m","redactions":2}]}`)
	d.ingest(t, sent)
	if got := p.oldServer.request(ingestMethod); !bytes.Equal(got, sent) {
		t.Errorf("the old server got %x, want %x, byte for byte", got, sent)
	}
	code, text := d.post(t, ingestMethod, `{"entries":[{"message":"m","redactions":2}]}`)
	_, bad := d.call(t, tools["old server"][1], `{"messages":[{"entries":[{"message":"m","redactions":2}]}]}`)
	if code != 400 || !strings.Contains(text, "redactions") || !strings.Contains(bad, "redactions") {
		t.Errorf("REST: %d %s; MCP: %s; want that both refuse redactions by name", code, text, bad)
	}
}

// A field that was removed: an old client still sends it. Its number and name are reserved, so nobody reads it as something else.
func TestFieldRemoved(t *testing.T) {
	t.Parallel()
	p := meet(t)
	d := p.before["new server"]
	answer := today().read(t, "IngestLogsResponse", d.ingest(t, p.first.wire(t, "IngestLogsRequest", `{"entries":[{"message":"sent with severity","fields":{"service":"removed"},"severity":3}]}`)))
	if field(t, answer, "accepted").Int() != 1 {
		t.Fatalf("summary = %v, want the entry accepted", answer)
	}
	found := p.first.read(t, "SearchLogsResponse", d.unary(t, searchMethod, p.first.wire(t, "SearchLogsRequest", `{"query":"service:removed"}`)))
	if got := field(t, found, "entries", 0, "severity").Int(); got != 0 || field(t, found, "total_size").Int() != 0 {
		t.Errorf("old client has severity %d of %v, want 0: the removed field is let be", got, found)
	}
	code, text := d.post(t, ingestMethod, `{"entries":[{"message":"m","severity":3}]}`)
	_, bad := d.call(t, "logs_ingest", `{"messages":[{"entries":[{"message":"m","severity":3}]}]}`)
	if code != 400 || !strings.Contains(text, "severity") || !strings.Contains(bad, "severity") {
		t.Errorf("REST: %d %s; MCP: %s; want that both refuse severity by name", code, text, bad)
	}
}

// An enum that grew: an old client keeps the number in binary; in JSON it gets a name that it does not know.
func TestEnumGrew(t *testing.T) {
	t.Parallel()
	p := meet(t)
	d := p.before["new server"]
	const batch = `{"entries":[{"message":"old","time":"2020-01-01T00:00:00Z"}]}`
	old := p.first.read(t, "IngestLogsResponse", d.ingest(t, p.first.wire(t, "IngestLogsRequest", batch)))
	if got := field(t, old, "rejections", 0, "code").Enum(); got != 3 {
		t.Errorf("old client has code %d, want the number 3, which it has no name for", got)
	}
	if again := today().read(t, "IngestLogsResponse", marshal(t, old)); field(t, again, "rejections", 0, "code").Enum() != 3 {
		t.Errorf("passed on by the old client: %v, want the number still", again)
	}
	_, byREST := d.post(t, ingestMethod, batch)
	byMCP, bad := d.call(t, "logs_ingest", `{"messages":[`+batch+`]}`)
	if bad != "" {
		t.Fatal(bad)
	}
	for door, text := range map[string]string{"REST": byREST, "MCP": byMCP} {
		if !strings.Contains(text, `"REJECTION_CODE_TOO_OLD"`) {
			t.Errorf("%s: %s, want the new name", door, text)
		}
		if err := protojson.Unmarshal([]byte(text), p.first.empty("IngestLogsResponse")); err == nil || !strings.Contains(err.Error(), "REJECTION_CODE_TOO_OLD") {
			t.Errorf("%s: a strict old client: %v, want that it does not know the name", door, err)
		}
		if again := lenient(t, p.first, "IngestLogsResponse", text); field(t, again, "rejections", 0, "code").Enum() != 0 {
			t.Errorf("%s: a lenient old client has %v, want the value lost", door, again)
		}
	}
	// In a request: the number of a value that the mesh's contract has not passes in binary to the server, and is refused by name in JSON.
	sent := protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 9)
	p.before["old server"].unary(t, searchMethod, sent)
	if got := p.oldServer.request(searchMethod); !bytes.Equal(got, sent) {
		t.Errorf("the old server got %x, want %x", got, sent)
	}
	for door, text := range p.before["old server"].refusedByJSON(t, searchMethod, tools["old server"][0], `{"order":"ORDER_BEST_FIRST"}`) {
		if !strings.Contains(text, "ORDER_BEST_FIRST") {
			t.Errorf("%s: %s, want the name that is not known", door, text)
		}
	}
}

// A mesh that does not know the newest contract yet passes all of it on in binary, and leaves out of JSON what it does not know.
func TestMeshBehind(t *testing.T) {
	t.Parallel()
	c := first(t)
	answer := today().wire(t, "SearchLogsResponse", `{"entries":[{"message":"to [REDACTED:email]","redactions":1}]}`)
	server := startOld(t, map[string][]byte{searchMethod: answer, ingestMethod: nil})
	d := open(t, "--backend", "logs="+server.addr, "--descriptors", "logs="+c.write(t))
	if got := d.unary(t, searchMethod, nil); !bytes.Equal(got, answer) {
		t.Errorf("through the mesh %x, want what the server sent, byte for byte: %x", got, answer)
	}
	for door, text := range d.byJSON(t, searchMethod, tools["old server"][0], `{}`) {
		if strings.Contains(text, "redactions") || !strings.Contains(text, "[REDACTED:email]") {
			t.Errorf("%s: %s, want the entry without what the contract has not", door, text)
		}
	}
}

// A field or value that is renamed is the same in binary and another in JSON.
func TestRenamed(t *testing.T) {
	t.Parallel()
	renamed := edited(t, first(t), func(f *descriptorpb.FileDescriptorProto) {
		f.MessageType[0].Field[1].Name, f.MessageType[0].Field[1].JsonName = proto.String("body"), proto.String("body")
		f.EnumType[0].Value[2].Name = proto.String("ORDER_OLD_TO_NEW")
	})
	server := startOld(t, map[string][]byte{searchMethod: first(t).wire(t, "SearchLogsResponse", `{"entries":[{"message":"hello"}]}`)})
	d := open(t, "--backend", "logs="+server.addr, "--descriptors", "logs="+renamed.write(t))
	request := first(t).wire(t, "SearchLogsRequest", `{"order":"ORDER_OLDEST_FIRST"}`)
	if got := field(t, first(t).read(t, "SearchLogsResponse", d.unary(t, searchMethod, request)), "entries", 0, "message").String(); got != "hello" {
		t.Errorf("gRPC: message = %q, want hello", got)
	}
	for door, text := range d.byJSON(t, searchMethod, tools["old server"][0], `{}`) {
		if got := field(t, lenient(t, first(t), "SearchLogsResponse", text), "entries", 0, "message").String(); got != "" || !strings.Contains(text, `"body"`) {
			t.Errorf("%s: old client has message %q of %s, want that it is lost", door, got, text)
		}
	}
	for door, text := range d.refusedByJSON(t, searchMethod, tools["old server"][0], `{"order":"ORDER_OLDEST_FIRST"}`) {
		if !strings.Contains(text, "ORDER_OLDEST_FIRST") {
			t.Errorf("%s: %s, want the name that is gone", door, text)
		}
	}
}

// 64-bit numbers are text in JSON, and 32-bit numbers are numbers: a change between them is none in binary, and one in JSON.
func TestNumbersInJSON(t *testing.T) {
	t.Parallel()
	d := open(t, "--backend", "logs="+startNew(t))
	for _, c := range []struct{ version, tool, entry, want string }{
		{"v1", "logs_ingest", `{"message":"m"}`, `"accepted":"1"`},
		{"v2", "logs_v2_ingest", `{"body":"m"}`, `"accepted":1`},
	} {
		_, byREST := d.post(t, "/agentops.logs."+c.version+".LogService/IngestLogs", `{"entries":[`+c.entry+`]}`)
		byMCP, _ := d.call(t, c.tool, `{"messages":[{"entries":[`+c.entry+`]}]}`)
		for door, text := range map[string]string{"REST": byREST, "MCP": byMCP} {
			if !strings.Contains(strings.ReplaceAll(text, " ", ""), c.want) {
				t.Errorf("%s, %s: %s, want %s", c.version, door, text, c.want)
			}
		}
	}
}

// Both versions through each door, of one server and the same entries.
func TestV1BesideV2(t *testing.T) {
	t.Parallel()
	d := open(t, "--backend", "logs="+startNew(t))
	if _, bad := d.call(t, "logs_v2_ingest", `{"messages":[{"entries":[{"body":"hello","service":"shop","severity":"SEVERITY_ERROR"}]}]}`); bad != "" {
		t.Fatal(bad)
	}
	for door, text := range d.byJSON(t, searchMethod, "logs_search", `{"query":"service:shop"}`) {
		if !strings.Contains(text, `"message":"hello"`) || !strings.Contains(text, `"level":"ERROR"`) {
			t.Errorf("v1, %s: %s, want the entry in its words", door, text)
		}
	}
	for door, text := range d.byJSON(t, "/agentops.logs.v2.LogService/SearchLogs", "logs_v2_search", `{"startTime":"`+recent()+`","minSeverity":"SEVERITY_WARN"}`) {
		if !strings.Contains(text, `"body":"hello"`) || !strings.Contains(text, `"severity":"SEVERITY_ERROR"`) || !strings.Contains(text, `"service":"shop"`) {
			t.Errorf("v2, %s: %s, want the entry in its words", door, text)
		}
	}
	for door, text := range d.refusedByJSON(t, "/agentops.logs.v2.LogService/SearchLogs", "logs_v2_search", `{}`) {
		if !strings.Contains(text, "start_time") && !strings.Contains(text, "startTime") {
			t.Errorf("v2, %s: %s, want that the start is missing", door, text)
		}
	}
}

// What the reservation keeps off: a field with the old number has an old client's severity read as something else, and nobody is told.
func TestReservedNumberReused(t *testing.T) {
	sent := first(t).wire(t, "LogEntry", `{"message":"m","severity":3}`)
	reused := edited(t, today(), func(f *descriptorpb.FileDescriptorProto) {
		entry := f.MessageType[0]
		entry.ReservedRange, entry.ReservedName = nil, nil
		entry.Field = append(entry.Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String("attempts"), Number: proto.Int32(4), Type: descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		})
	})
	if got := field(t, reused.read(t, "LogEntry", sent), "attempts").Int(); got != 3 {
		t.Errorf("attempts = %d, want the old client's severity 3", got)
	}
	if m := today().read(t, "LogEntry", sent); len(m.GetUnknown()) == 0 {
		t.Errorf("today's contract reads %v, want severity as unknown", m)
	}
}
