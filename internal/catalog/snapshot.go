// Package catalog turns descriptor sources into immutable snapshots of every backend's services, methods, tools and routes.
package catalog

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// Snapshot is one version of the catalog. It never changes and is safe for concurrent use. Slices it returns must not be changed.
type Snapshot struct {
	version    string
	backends   []*Backend
	services   []*Service
	methods    []*Method
	tools      []*Method
	resources  []*Resource
	prompts    []*Prompt
	findings   []Finding
	owned      []*Resource // in the order of ownership, withdrawn ones included
	byShape    map[string]*Resource
	byPrompt   map[string]*Prompt
	byMethod   map[string]*Method
	byTool     map[string]*Method
	byService  map[string]*Service
	superseded chan struct{}

	toolsOnce    sync.Once
	toolsVersion string
}

// Version is a hash of everything that the snapshot holds; equal snapshots have equal versions, across restarts too.
func (s *Snapshot) Version() string { return s.version }

// Superseded is closed when the catalog holds a newer snapshot.
func (s *Snapshot) Superseded() <-chan struct{} { return s.superseded }

// ToolsVersion is a hash of what Tools shows: names, titles, descriptions, hints and schemas. It stays the same when only a backend's state
// within its grace period, a route or an unlisted method changes.
func (s *Snapshot) ToolsVersion() string {
	s.toolsOnce.Do(func() { s.toolsVersion = s.hashTools() })
	return s.toolsVersion
}

// Backends returns all backends in the order of the configuration.
func (s *Snapshot) Backends() []*Backend { return s.backends }

// Services returns all owned services sorted by full name, infrastructure services included.
func (s *Snapshot) Services() []*Service { return s.services }

// Methods returns all methods sorted by full method, infrastructure methods included.
func (s *Snapshot) Methods() []*Method { return s.methods }

// Tools returns the methods that agents may see now, sorted by tool name: no infrastructure, nothing withdrawn, quarantined or kept from the MCP
// door.
func (s *Snapshot) Tools() []*Method { return s.tools }

// Findings returns what was left out or repaired while the snapshot was built.
func (s *Snapshot) Findings() []Finding { return s.findings }

// Method returns the method of a full method such as "/pkg.Service/Method", or nil.
func (s *Snapshot) Method(fullMethod string) *Method { return s.byMethod[fullMethod] }

// Service returns the service of a full name such as "pkg.Service", or nil.
func (s *Snapshot) Service(fullName string) *Service { return s.byService[fullName] }

// Tool returns the method whose tool has the name, or nil. Withdrawn tools are found (see Backend.State). Every tool is also found by its
// long name, which ends in a hash of its full name and does not depend on other methods; a tool whose name is taken is listed under it.
func (s *Snapshot) Tool(name string) *Method { return s.byTool[name] }

// State says whether a backend can take calls.
type State int

const (
	// Up takes calls.
	Up State = iota
	// Flapping has been down for less than the grace period: its tools are still listed.
	Flapping
	// Down takes no calls, and its tools are withdrawn.
	Down
)

// String returns "up", "flapping" or "down".
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Flapping:
		return "flapping"
	case Down:
		return "down"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Backend is one named thing that answers calls.
type Backend struct {
	// Name is unique in a snapshot.
	Name string
	// State is the backend's at the time of the snapshot. A backend that is covered counts as up.
	State State
	// Failover is the name of the backend that takes the calls which this one has not executed; "" if there is none. Covered says that this one is
	// down and the other, which is up, answers in its place.
	Failover string
	Covered  bool
	// Files are the backend's own files. No other backend's types are in there. Nil while no contract is known.
	Files *Files
	// Codecs holds the transcoders of the backend's messages.
	Codecs *transcode.Set

	contract *contract
}

// Service is one service of the backend that owns it.
type Service struct {
	Desc    protoreflect.ServiceDescriptor
	Backend *Backend
	Methods []*Method
	// Infrastructure marks services that only the gRPC door serves: grpc.health.*, grpc.reflection.* and the like.
	Infrastructure bool
	// Mesh marks the mesh's own API, toolway.*: the gRPC and HTTP doors serve it like any other service, but its methods are not among Tools.
	Mesh bool
}

// Method is one method of one service, with what every door needs to serve it.
type Method struct {
	// FullMethod is gRPC's name, "/pkg.Service/Method".
	FullMethod string
	Desc       protoreflect.MethodDescriptor
	Service    *Service
	Backend    *Backend
	// Tool is the method as agents see it. Tool.Name is empty when the method is no tool, and the long name when another tool has its name.
	Tool Tool
	// Bindings are the google.api.http rules that this method owns, additional ones included, in order.
	Bindings []Binding
	// Timeout is the deadline of a call that brings none; 0 means the mesh's default.
	Timeout time.Duration
	// MaxTimeout caps the deadline of any call; 0 means the mesh's cap.
	MaxTimeout time.Duration
	// Failover is the name of the backend that brings the same method and takes calls which Backend has not executed; "" if there is none.
	Failover string
	// Policy is what the method's calls meet.
	Policy Policy
	// Quarantine says why the method's calls are refused until its definition has been reviewed; "" means that they are not. Such a tool is
	// not listed.
	Quarantine string
	// Deprecated is the contract's option.
	Deprecated bool

	info     *methodInfo
	analysis *analysis
	memo     *sync.Map
	marked   [2]*FieldSet // of requests and of responses
	hidden   Doors        // that do not expose the method
	// Of the options: commented says that a person wrote the description, cut that the tool's name was, refused that the policy cannot be
	// kept, so that no door may expose the method.
	commented, cut, refused bool
	annotated               evidence
}

// Memo returns what derive returned when it was first asked for by this key: what a layer above makes of a method once per snapshot. When
// several goroutines ask first, derive may run more than once; all get the same value.
func (m *Method) Memo(key any, derive func() any) any {
	if m.memo == nil { // made by a test, not by a catalog
		return derive()
	}
	if v, ok := m.memo.Load(key); ok {
		return v
	}
	v, _ := m.memo.LoadOrStore(key, derive())
	return v
}

// Hash identifies the method's definition: its signature and options, what agents see of it, and every message that its request and
// response reach, comments included. It is stable across restarts and does not depend on anything else in the method's file.
func (m *Method) Hash() string {
	if m.info == nil {
		return new(fingerprints).method(m)
	}
	m.info.hashOnce.Do(func() { m.info.hash = m.analysis.prints.method(m) })
	return m.info.hash
}

// Kind says which sides of a call stream.
func (m *Method) Kind() Kind {
	return Kind{Client: m.Desc.IsStreamingClient(), Server: m.Desc.IsStreamingServer()}
}

// Kind says which sides of a call stream.
type Kind struct{ Client, Server bool }

// StreamDesc returns the method's exact stream description for grpc.ClientConn.NewStream.
func (m *Method) StreamDesc() *grpc.StreamDesc {
	return &grpc.StreamDesc{StreamName: string(m.Desc.Name()), ClientStreams: m.Desc.IsStreamingClient(), ServerStreams: m.Desc.IsStreamingServer()}
}

// Request returns the transcoder of the method's request message.
func (m *Method) Request() *transcode.Message { return m.Backend.Codecs.Message(m.Desc.Input()) }

// Response returns the transcoder of the method's response message.
func (m *Method) Response() *transcode.Message { return m.Backend.Codecs.Message(m.Desc.Output()) }

// Tool is a method as agents see it.
type Tool struct {
	// Name is [a-zA-Z][a-zA-Z0-9_-]*, at most MaxToolName characters.
	Name string
	// Title is a short name for people; never empty.
	Title string
	// Description is for agents: from the option, the comment or a generated sentence; never empty, bounded, cleaned.
	Description string
	// Hints are MCP's annotations.
	Hints Hints
}

// Hints are MCP's tool annotations, resolved by the ladder of DESIGN.md.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld bool }

// Binding is one google.api.http rule.
type Binding struct {
	// Verb is the HTTP method, such as "GET" or a custom kind.
	Verb string
	// Template is the path template as written, such as "/v1/{name=books/*}:read".
	Template string
	// Body is "" (no body), "*" or the name of a request field.
	Body string
	// ResponseBody is "" (the whole response) or the name of a response field.
	ResponseBody string
}

// Finding is something that a source brought and that could not be served as it is, or was repaired.
type Finding struct {
	// Code is stable and machine-readable, such as "file-dropped", "service-owned", "tool-clash", "route-clash", "comment-missing".
	Code string `json:"code"`
	// Severity is "error" (something is not served), or "warning".
	Severity string `json:"severity"`
	// Backend is the backend's name.
	Backend string `json:"backend"`
	// Subject is the file, full name, tool or route concerned.
	Subject string `json:"subject"`
	// Message says what, where and the mend.
	Message string `json:"message"`
}

// Severities of findings.
const (
	// SeverityError means that something is not served.
	SeverityError = "error"
	// SeverityWarning means that something was repaired, or could be better.
	SeverityWarning = "warning"
)

// InputSchema returns the JSON Schema of the tool's arguments, made once. Client-streaming methods take {"messages":[…]}.
func (m *Method) InputSchema(p toolschema.Profile) []byte { return m.schema(toolschema.Input, p) }

// OutputSchema returns the JSON Schema of the tool's structured result, made once. Server streams give {"items":[…]}.
func (m *Method) OutputSchema(p toolschema.Profile) []byte { return m.schema(toolschema.Output, p) }

func (m *Method) schema(d toolschema.Direction, p toolschema.Profile) []byte {
	switch {
	case m.info == nil:
		return new(schemas).get(m, d, p)
	case d == toolschema.Input:
		return m.info.in.get(m, d, p)
	}
	return m.info.out.get(m, d, p)
}
