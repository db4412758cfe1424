package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolway/toolway/internal/transcode"
)

const maxFindings = 500

// rawFile is one file of a source before it is parsed.
type rawFile struct {
	data []byte // a FileDescriptorProto
	at   string // where it stands in the source, for messages
}

// loadOptions say how files become a contract.
type loadOptions struct {
	// donors supply comments, and files that the source leaves out.
	donors []*contract
	// only are the services to serve; nil means all.
	only []string
}

// loader loads one source's files tolerantly: what is bad loses itself and what needs it.
type loader struct {
	opts     loadOptions
	order    []*file
	byPath   map[string]*file
	types    map[string]*file  // messages and enums, nested ones too
	names    map[string]*file  // all that stands at the top of a file
	tainted  map[string]string // messages that lost a field, or reach one that did → the type that is missing
	gone     map[string]bool   // types that were taken out of their file
	refused  map[string]bool   // library files that would clash with what is there
	files    *Files
	findings []Finding
	more     int
}

// file is one file under way.
type file struct {
	path    string
	fdp     *descriptorpb.FileDescriptorProto
	library bool // from the built-ins or a donor
	visit   int  // 0 not yet, 1 under way, 2 done
	built   protoreflect.FileDescriptor
	scope   string
}

func loadSet(set *descriptorpb.FileDescriptorSet) (*contract, error) {
	var raws []rawFile
	for i, fdp := range set.GetFile() {
		data, err := proto.MarshalOptions{AllowPartial: true}.Marshal(fdp)
		if err != nil {
			return nil, fmt.Errorf("load descriptors: file %q: %w", fdp.GetName(), err)
		}
		raws = append(raws, rawFile{data: data, at: fmt.Sprintf("file %d", i+1)})
	}
	return load(raws, loadOptions{})
}

// load never panics on what it is given. It fails only when there were files and none could be used.
func load(raws []rawFile, opts loadOptions) (*contract, error) {
	l := &loader{
		opts: opts, byPath: map[string]*file{}, types: map[string]*file{}, names: map[string]*file{}, tainted: map[string]string{},
		gone: map[string]bool{}, refused: map[string]bool{}, files: new(Files),
	}
	for _, r := range raws {
		l.take(r)
	}
	own := l.order
	l.completeFromLibraries()
	for _, f := range slices.Clone(l.order) {
		l.process(f)
	}
	loaded := 0
	for _, f := range own {
		if f.built != nil {
			loaded++
		}
	}
	if loaded == 0 && len(raws) > 0 {
		err := errors.New("no file of it can be used")
		if len(l.findings) > 0 {
			err = fmt.Errorf("%w: %s", err, l.findings[0].Message)
		}
		return nil, err
	}
	return l.contract(own), nil
}

func (l *loader) contract(own []*file) *contract {
	c := &contract{files: l.files}
	c.codecs = transcode.NewSet(&types{Types: dynamicpb.NewTypes(l.files), tainted: l.tainted})
	for _, f := range own {
		if f.built == nil {
			continue
		}
		for i := range f.built.Services().Len() {
			sd := f.built.Services().Get(i)
			if l.opts.only == nil || slices.Contains(l.opts.only, string(sd.FullName())) {
				c.services = append(c.services, sd)
			}
		}
	}
	slices.SortFunc(c.services, func(a, b serviceDescriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })
	if l.more > 0 {
		l.findings = append(l.findings, Finding{Code: "findings-cut", Severity: SeverityWarning, Message: fmt.Sprintf("%d more findings are not listed; mend the first ones and load again", l.more)})
	}
	c.findings = l.findings
	c.hash = contractHash(l.order, c)
	return c
}

// contractHash does not depend on the order of the files.
func contractHash(files []*file, c *contract) string {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b *file) int { return cmp.Compare(a.path, b.path) })
	h := sha256.New()
	for _, f := range files {
		if f.built == nil {
			continue
		}
		b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(f.fdp)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(b)
		fmt.Fprintf(h, "%q %x\n", f.path, sum)
	}
	for _, s := range c.services {
		fmt.Fprintf(h, "%q\n", s.FullName())
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (l *loader) find(code, severity, subject, format string, args ...any) {
	if len(l.findings) >= maxFindings {
		l.more++
		return
	}
	l.findings = append(l.findings, Finding{Code: code, Severity: severity, Subject: subject, Message: fmt.Sprintf(format, args...)})
}

// take parses a file and enters its names.
func (l *loader) take(r rawFile) {
	fdp, err := parseFile(r.data, optionTypes())
	if err != nil {
		plain, plainErr := parseFile(r.data, new(protoregistry.Types))
		if plainErr != nil {
			l.find("file-dropped", SeverityError, r.at, "%s is left out: it is no file descriptor: %v; build the set again", r.at, plainErr)
			return
		}
		fdp = plain
		l.find("options-unreadable", SeverityWarning, fdp.GetName(), "options of file %q are left out: %v; build the set again with the option files it was written for", fdp.GetName(), err)
	}
	path := fdp.GetName()
	if path == "" {
		l.find("file-dropped", SeverityError, r.at, "%s is left out: it has no path; build the set again", r.at)
		return
	}
	if old := l.byPath[path]; old != nil {
		if !sameFile(old.fdp, fdp) {
			l.find("file-duplicate", SeverityWarning, path, "file %q is in the source twice with different content; the first is taken; build the set again from one version", path)
		}
		return
	}
	if name := misshapen(fdp); name != "" {
		l.find("file-dropped", SeverityError, path, "file %q is left out: its %s is not the well-known type of that name; the built-in one stands for it", path, name)
		return
	}
	l.enter(&file{path: path, fdp: fdp})
}

func parseFile(data []byte, types *protoregistry.Types) (*descriptorpb.FileDescriptorProto, error) {
	fdp := new(descriptorpb.FileDescriptorProto)
	err := proto.UnmarshalOptions{Resolver: types, AllowPartial: true}.Unmarshal(data, fdp)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\u00a0", " "))
	}
	return fdp, nil
}

// sameFile compares without comments: reflection and compilers keep them or not.
func sameFile(a, b *descriptorpb.FileDescriptorProto) bool {
	as, bs := a.SourceCodeInfo, b.SourceCodeInfo
	a.SourceCodeInfo, b.SourceCodeInfo = nil, nil
	same := proto.Equal(a, b)
	a.SourceCodeInfo, b.SourceCodeInfo = as, bs
	if same && as == nil {
		a.SourceCodeInfo = bs
	}
	return same
}

// enter adds a file and its names. What an earlier file already defines is taken out of it.
func (l *loader) enter(f *file) {
	f.scope = f.fdp.GetPackage()
	l.repairMaps(f)
	l.dropDuplicates(f)
	l.byPath[f.path] = f
	l.order = append(l.order, f)
	eachType(f.fdp, func(name string) { l.types[name] = f })
}

// completeFromLibraries adds the files that are imported or needed, and not there, from the donors and the built-ins.
func (l *loader) completeFromLibraries() {
	for i := 0; i < len(l.order); i++ { // l.order grows
		f := l.order[i]
		for _, dep := range f.fdp.GetDependency() {
			if l.byPath[dep] == nil {
				l.addFromLibrary(func(lib *Files) (protoreflect.FileDescriptor, error) { return lib.FindFileByPath(dep) })
			}
		}
		eachRef(f.fdp, func(scope, ref string) {
			if _, ok := l.lookup(scope, ref); ok || !strings.HasPrefix(ref, ".") {
				return
			}
			l.addFromLibrary(func(lib *Files) (protoreflect.FileDescriptor, error) {
				d, err := lib.FindDescriptorByName(protoreflect.FullName(ref[1:]))
				if err != nil {
					return nil, err
				}
				return d.ParentFile(), nil
			})
		})
	}
}

func (l *loader) addFromLibrary(find func(*Files) (protoreflect.FileDescriptor, error)) {
	libs := make([]*Files, 0, len(l.opts.donors)+1)
	for _, d := range l.opts.donors {
		libs = append(libs, d.files)
	}
	for _, lib := range append(libs, builtin()) {
		fd, err := find(lib)
		if err != nil || l.byPath[fd.Path()] != nil || l.refused[fd.Path()] {
			continue
		}
		fdp := protodesc.ToFileDescriptorProto(fd)
		taken := false
		eachTop(fdp, func(name string) { taken = taken || l.names[name] != nil })
		if !taken {
			l.enter(&file{path: fd.Path(), fdp: fdp, library: true})
			return
		}
		l.refused[fd.Path()] = true
	}
}

// process builds a file after all that it needs.
func (l *loader) process(f *file) {
	if f.visit != 0 {
		return
	}
	f.visit = 1
	defer func() { f.visit = 2 }()
	for _, dep := range f.fdp.GetDependency() {
		if d := l.byPath[dep]; d != nil {
			l.process(d)
		}
	}
	eachRef(f.fdp, func(scope, ref string) {
		if d, ok := l.lookup(scope, ref); ok {
			l.process(d)
		}
	})
	comments := ownComments(f.fdp)
	if l.prune(f) {
		setComments(f.fdp, comments)
	}
	l.borrowComments(f)
	l.imports(f)
	fd, err := newFile(f.fdp, l.files)
	if err == nil {
		err = l.files.RegisterFile(fd)
	}
	if err != nil {
		l.find("file-dropped", SeverityError, f.path, "file %q is left out: %s; mend the file, other files keep what does not need it", f.path, strings.ReplaceAll(err.Error(), "\u00a0", " "))
		return
	}
	f.built = fd
}

// newFile guards protodesc, which is not made for hostile input.
func newFile(fdp *descriptorpb.FileDescriptorProto, files *Files) (fd protoreflect.FileDescriptor, err error) {
	defer func() {
		if r := recover(); r != nil {
			fd, err = nil, fmt.Errorf("malformed: %v", r)
		}
	}()
	return protodesc.NewFile(fdp, files)
}

// imports makes the file's imports fit what was loaded and what the file needs.
func (l *loader) imports(f *file) {
	public := map[string]bool{}
	for _, i := range f.fdp.GetPublicDependency() {
		if int(i) >= 0 && int(i) < len(f.fdp.GetDependency()) {
			public[f.fdp.GetDependency()[i]] = true
		}
	}
	var deps, missing []string
	visible := map[*file]bool{f: true}
	for _, dep := range f.fdp.GetDependency() {
		d := l.byPath[dep]
		switch {
		case slices.Contains(deps, dep):
		case d == f:
			l.find("import-cycle", SeverityWarning, f.path, "file %q imports itself; the import is left out", f.path)
		case d == nil:
			missing = append(missing, dep)
		case d.visit == 1:
			l.find("import-cycle", SeverityError, f.path, "files %q and %q import each other; %q loses what it needs of the other; break the cycle", f.path, dep, f.path)
		case d.built != nil:
			deps = append(deps, dep)
			l.see(d.built, visible)
		}
	}
	for _, need := range l.needs(f) {
		if visible[need] {
			continue
		}
		deps = append(deps, need.path)
		l.see(need.built, visible)
		if i := slices.IndexFunc(missing, func(m string) bool { return base(m) == base(need.path) }); i >= 0 {
			l.find("import-repaired", SeverityWarning, f.path, "file %q imports %q, which is not there; %q defines what it needs and stands for it; compile both with the same import paths", f.path, missing[i], need.path)
			missing = slices.Delete(missing, i, i+1)
		} else if !l.byPath[f.path].library {
			l.find("import-repaired", SeverityWarning, f.path, "file %q uses types of %q without importing it; the import is added", f.path, need.path)
		}
	}
	for _, m := range missing {
		l.find("import-missing", SeverityWarning, f.path, "file %q imports %q, which the source does not bring; what served only options is left out; add the file to the source (--include_imports)", f.path, m)
	}
	f.fdp.Dependency, f.fdp.PublicDependency, f.fdp.WeakDependency = deps, nil, nil
	for i, dep := range deps {
		if public[dep] {
			f.fdp.PublicDependency = append(f.fdp.PublicDependency, int32(i))
		}
	}
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// see adds the file and what it imports publicly.
func (l *loader) see(fd protoreflect.FileDescriptor, into map[*file]bool) {
	if f := l.byPath[fd.Path()]; f != nil && !into[f] {
		into[f] = true
		for i := range fd.Imports().Len() {
			if imp := fd.Imports().Get(i); imp.IsPublic {
				l.see(imp.FileDescriptor, into)
			}
		}
	}
}

// needs returns the loaded files that define what f refers to, in order of first use.
func (l *loader) needs(f *file) []*file {
	var out []*file
	eachRef(f.fdp, func(scope, ref string) {
		if d, ok := l.lookup(scope, ref); ok && d != f && d.built != nil && !slices.Contains(out, d) {
			out = append(out, d)
		}
	})
	return out
}

// lookup finds the file that defines the type that ref means in scope.
func (l *loader) lookup(scope, ref string) (*file, bool) {
	name, ok := l.resolve(scope, ref)
	return l.types[name], ok
}

// resolve returns the full name of the type that ref means in scope. Compilers write full names with a leading dot; other writers may not.
func (l *loader) resolve(scope, ref string) (string, bool) {
	if full, ok := strings.CutPrefix(ref, "."); ok {
		_, known := l.types[full]
		return full, known
	}
	for s := scope; ; s = string(protoreflect.FullName(s).Parent()) {
		full := join(s, ref)
		if _, known := l.types[full]; known {
			return full, true
		}
		if s == "" {
			return ref, false
		}
	}
}

func join(scope, name string) string {
	if scope == "" {
		return name
	}
	return scope + "." + name
}

// types resolves Any and extensions by the backend's own types, but not by those that lost a field: they would lose data.
type types struct {
	*dynamicpb.Types
	tainted map[string]string
}

// FindMessageByName returns the message type, or protoregistry.NotFound.
func (t *types) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if _, bad := t.tainted[string(name)]; bad {
		return nil, protoregistry.NotFound
	}
	return t.Types.FindMessageByName(name)
}

// FindMessageByURL returns the message type, or protoregistry.NotFound.
func (t *types) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return t.FindMessageByName(protoreflect.FullName(base(url)))
}
