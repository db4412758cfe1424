package mesh

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolway/toolway/internal/catalog"
)

// contractFile is where the last contract of a backend is kept.
func (m *Mesh) contractFile(backend string) string {
	return filepath.Join(m.config.Data, "contracts", backend+".binpb")
}

// keepContracts writes the contract of each backend that is up whenever it changes, so that the next start knows it.
func (m *Mesh) keepContracts(ctx context.Context) {
	written := map[string]*catalog.Files{}
	for s := range m.catalog.Watch(ctx) {
		for _, b := range s.Backends() {
			if b.Name == own || b.State != catalog.Up || b.Files == nil || written[b.Name] == b.Files {
				continue
			}
			if err := writeContract(m.contractFile(b.Name), b.Descriptors()); err != nil {
				m.log.Error("keep the contract", "backend", b.Name, "error", err)
				continue
			}
			written[b.Name] = b.Files
		}
	}
}

// writeContract replaces the file at once, so that a reader sees the old contract or the new one.
func writeContract(path string, set *descriptorpb.FileDescriptorSet) error {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".contract-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already when it was renamed
	if _, err := tmp.Write(data); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Sync(); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
