package backend

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/call"
)

// Local is a backend in this process: services compiled in, called without a connection but with the same chain before them. It is a
// grpc.ServiceRegistrar for generated Register functions. Registration must be over before the first call.
type Local struct {
	services map[string]*localService
}

type localService struct {
	desc *grpc.ServiceDesc
	impl any
}

var _ grpc.ServiceRegistrar = (*Local)(nil)

// NewLocal returns a backend without services.
func NewLocal() *Local { return &Local{services: map[string]*localService{}} }

// RegisterService adds a service. It panics if impl does not implement it or if it is there already, as grpc.Server ends the program then.
func (l *Local) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if want := reflect.TypeOf(desc.HandlerType).Elem(); impl != nil && !reflect.TypeOf(impl).Implements(want) {
		panic(fmt.Sprintf("register service %q: %T does not implement %v", desc.ServiceName, impl, want))
	}
	if l.services[desc.ServiceName] != nil {
		panic(fmt.Sprintf("register service %q: it is registered already", desc.ServiceName))
	}
	l.services[desc.ServiceName] = &localService{desc: desc, impl: impl}
}

// Services returns the names of the registered services, sorted.
func (l *Local) Services() []string {
	names := make([]string, 0, len(l.services))
	for name := range l.services {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Descriptors returns the files of the registered services and all that these import, as linked into this program.
func (l *Local) Descriptors() (*descriptorpb.FileDescriptorSet, error) {
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(fd protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(fd))
	}
	for _, name := range l.Services() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return nil, fmt.Errorf("descriptor of compiled-in service %q: %w", name, err)
		}
		add(d.ParentFile())
	}
	return set, nil
}

func (l *Local) handle(c *call.Call, stream grpc.ServerStream) error {
	service, method, _ := strings.Cut(strings.TrimPrefix(c.Method.FullMethod, "/"), "/")
	s := l.services[service]
	if s == nil {
		return status.Errorf(codes.Unimplemented, "unknown service %v", service)
	}
	// A compiled-in service is a backend like any other: it sees what crosses, not what the caller sent.
	stream = &localStream{stream, metadata.NewIncomingContext(stream.Context(), c.Forward)}
	c.Sent = true
	for i := range s.desc.Methods {
		if m := &s.desc.Methods[i]; m.MethodName == method {
			reply, err := m.Handler(s.impl, stream.Context(), stream.RecvMsg, nil)
			if err != nil {
				return err
			}
			return stream.SendMsg(reply)
		}
	}
	for i := range s.desc.Streams {
		if m := &s.desc.Streams[i]; m.StreamName == method {
			return s.stream(c, m, stream)
		}
	}
	return status.Errorf(codes.Unimplemented, "unknown method %v for service %v", method, service)
}

// stream runs a streaming handler. Its own goroutine waits for the caller's next request, which the deadline of the chain must end too.
func (s *localService) stream(c *call.Call, m *grpc.StreamDesc, stream grpc.ServerStream) error {
	ctx := stream.Context()
	if m.ClientStreams {
		defer context.AfterFunc(ctx, c.StopRequests)()
	}
	err := m.Handler(s.impl, stream)
	if status.Code(err) == codes.Canceled && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

type localStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context with only what crosses as incoming metadata.
func (s *localStream) Context() context.Context { return s.ctx }
