package mesh

import (
	"errors"
	"fmt"
	"os"
)

// minStateKey is as much as AES-256 needs.
const minStateKey = 32

// normalise refuses what contradicts itself.
func (m *MCP) normalise() error {
	switch {
	case m.StreamAge < 0:
		return errors.New("mcp.stream_age is negative: want a time such as 25s, or leave it out")
	case m.StreamAge > 0 && !m.Sessions:
		return errors.New("mcp.stream_age is set without mcp.sessions: only a session keeps what a client comes back for; set mcp.sessions to true, or leave mcp.stream_age out")
	}
	return nil
}

// stateKey reads the key, or returns nil if none is configured.
func (m *MCP) stateKey() ([]byte, error) {
	if m.StateKeyFile == "" {
		return nil, nil
	}
	key, err := os.ReadFile(m.StateKeyFile)
	if err != nil {
		return nil, fmt.Errorf("mcp.state_key_file: %w", err)
	}
	if len(key) < minStateKey {
		return nil, fmt.Errorf("mcp.state_key_file: %q has %d bytes: want %d random ones or more, as \"head -c 32 /dev/urandom\" gives", m.StateKeyFile, len(key), minStateKey)
	}
	return key, nil
}
