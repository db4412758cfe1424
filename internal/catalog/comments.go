package catalog

import (
	"encoding/binary"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

type comment struct{ leading, trailing string }

// ownComments returns a file's comments by full name, so that they survive when elements are taken out and positions move.
func ownComments(fdp *descriptorpb.FileDescriptorProto) func(name string) comment {
	byPath := map[string]comment{}
	for _, loc := range fdp.GetSourceCodeInfo().GetLocation() {
		if loc.LeadingComments != nil || loc.TrailingComments != nil {
			byPath[pathKey(loc.GetPath())] = comment{loc.GetLeadingComments(), loc.GetTrailingComments()}
		}
	}
	byName := map[string]comment{}
	if len(byPath) > 0 {
		eachSymbol(fdp, func(name string, path []int32) {
			if c, ok := byPath[pathKey(path)]; ok {
				byName[name] = c
			}
		})
	}
	return func(name string) comment { return byName[name] }
}

func pathKey(path []int32) string {
	b := make([]byte, 0, 2*len(path))
	for _, p := range path {
		b = binary.AppendVarint(b, int64(p))
	}
	return string(b)
}

// setComments writes the file's source info anew from comments by full name.
func setComments(fdp *descriptorpb.FileDescriptorProto, of func(name string) comment) {
	info := new(descriptorpb.SourceCodeInfo)
	eachSymbol(fdp, func(name string, path []int32) {
		c := of(name)
		if c == (comment{}) {
			return
		}
		loc := &descriptorpb.SourceCodeInfo_Location{Path: path, Span: []int32{0, 0, 0}}
		if c.leading != "" {
			loc.LeadingComments = &c.leading
		}
		if c.trailing != "" {
			loc.TrailingComments = &c.trailing
		}
		info.Location = append(info.Location, loc)
	})
	fdp.SourceCodeInfo = nil
	if len(info.Location) > 0 {
		fdp.SourceCodeInfo = info
	}
}

// commentsIn returns the comments of built files by full name.
func commentsIn(files ...*Files) func(name string) comment {
	return func(name string) comment {
		for _, f := range files {
			d, err := f.FindDescriptorByName(protoreflect.FullName(name))
			if err != nil {
				continue
			}
			loc := d.ParentFile().SourceLocations().ByDescriptor(d)
			if c := (comment{loc.LeadingComments, loc.TrailingComments}); c != (comment{}) {
				return c
			}
		}
		return comment{}
	}
}

// borrowComments gives a file that has none the comments that the donors have for the same full names, whatever their files are called.
func (l *loader) borrowComments(f *file) {
	if len(l.opts.donors) == 0 || len(f.fdp.GetSourceCodeInfo().GetLocation()) > 0 {
		return
	}
	donors := make([]*Files, len(l.opts.donors))
	for i, d := range l.opts.donors {
		donors[i] = d.files
	}
	setComments(f.fdp, commentsIn(donors...))
}
