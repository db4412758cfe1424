package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/toolschema"
	"github.com/toolway/toolway/internal/transcode"
)

// Files are one backend's file descriptors.
type Files = protoregistry.Files

// Static returns a snapshot of one backend whose contract is set.
func Static(backend string, set *descriptorpb.FileDescriptorSet) (*Snapshot, error) {
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("load descriptors of backend %q: %w", backend, err)
	}
	b := &Backend{Name: backend, Files: files, Codecs: transcode.NewSet(dynamicpb.NewTypes(files))}
	s := &Snapshot{backends: []*Backend{b}, byMethod: map[string]*Method{}, byTool: map[string]*Method{}, byService: map[string]*Service{}, superseded: make(chan struct{})}
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		for i := range fd.Services().Len() {
			s.add(b, fd.Services().Get(i))
		}
		return true
	})
	sort.Slice(s.methods, func(i, j int) bool { return s.methods[i].FullMethod < s.methods[j].FullMethod })
	sort.Slice(s.services, func(i, j int) bool { return s.services[i].Desc.FullName() < s.services[j].Desc.FullName() })
	h := sha256.New()
	for _, m := range s.methods {
		fmt.Fprintln(h, m.FullMethod)
		if m.Tool.Name != "" {
			s.tools = append(s.tools, m)
			s.byTool[m.Tool.Name] = m
		}
	}
	sort.Slice(s.tools, func(i, j int) bool { return s.tools[i].Tool.Name < s.tools[j].Tool.Name })
	s.version = hex.EncodeToString(h.Sum(nil)[:16])
	return s, nil
}

func (s *Snapshot) add(b *Backend, sd protoreflect.ServiceDescriptor) {
	svc := &Service{Desc: sd, Backend: b, Infrastructure: strings.HasPrefix(string(sd.FullName()), "grpc.")}
	s.services = append(s.services, svc)
	s.byService[string(sd.FullName())] = svc
	for i := range sd.Methods().Len() {
		md := sd.Methods().Get(i)
		m := &Method{FullMethod: "/" + string(sd.FullName()) + "/" + string(md.Name()), Desc: md, Service: svc, Backend: b}
		if !svc.Infrastructure {
			m.Tool = Tool{Name: strings.ToLower(string(sd.Name()) + "_" + string(md.Name())), Title: string(md.Name()), Description: "Calls " + string(md.FullName()) + ".", Hints: Hints{Destructive: true, OpenWorld: true}}
			m.Bindings = bindings(md)
		}
		svc.Methods = append(svc.Methods, m)
		s.methods = append(s.methods, m)
		s.byMethod[m.FullMethod] = m
	}
}

func bindings(md protoreflect.MethodDescriptor) []Binding {
	rule, _ := proto.GetExtension(md.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return nil
	}
	var out []Binding
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		b := Binding{Body: r.GetBody(), ResponseBody: r.GetResponseBody()}
		switch p := r.GetPattern().(type) {
		case *annotations.HttpRule_Get:
			b.Verb, b.Template = "GET", p.Get
		case *annotations.HttpRule_Put:
			b.Verb, b.Template = "PUT", p.Put
		case *annotations.HttpRule_Post:
			b.Verb, b.Template = "POST", p.Post
		case *annotations.HttpRule_Delete:
			b.Verb, b.Template = "DELETE", p.Delete
		case *annotations.HttpRule_Patch:
			b.Verb, b.Template = "PATCH", p.Patch
		case *annotations.HttpRule_Custom:
			b.Verb, b.Template = p.Custom.GetKind(), p.Custom.GetPath()
		default:
			continue
		}
		out = append(out, b)
	}
	return out
}

// schemas makes a method's schema of one direction once per profile.
type schemas struct {
	once [3]sync.Once
	json [3][]byte
}

func (s *schemas) get(m *Method, d toolschema.Direction, p toolschema.Profile) []byte {
	s.once[p].Do(func() {
		md, wrap := m.Desc.Input(), ""
		if d == toolschema.Output {
			md = m.Desc.Output()
		}
		if d == toolschema.Input && m.Desc.IsStreamingClient() {
			wrap = "messages"
		}
		if d == toolschema.Output && m.Desc.IsStreamingServer() {
			wrap = "items"
		}
		body := toolschema.For(md, toolschema.Options{Direction: d, Profile: p})
		if wrap != "" {
			body = []byte(fmt.Sprintf(`{"type":"object","properties":{%q:{"type":"array","items":%s}}}`, wrap, body))
		}
		s.json[p] = body
	})
	return s.json[p]
}
