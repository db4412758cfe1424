package mcpadapter

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolway/toolway/internal/catalog"
)

// changeSettle is how long the lists must be at rest before clients hear of a change.
const changeSettle = 50 * time.Millisecond

// lists are those of which something has changed.
type lists uint8

const (
	ofTools lists = 1 << iota
	ofPrompts
	ofResources
)

// changes tells connected clients that a list has changed. It watches the catalog only while somebody may want to know.
type changes struct {
	adapter *Adapter

	mu       sync.Mutex
	watchers int
	cancel   context.CancelFunc
	done     chan struct{}
	tell     map[*func(lists)]bool // besides the SDK's sessions
}

// watch makes changes known until release is called, which may be done once.
func (c *changes) watch() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers++; c.watchers == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel, c.done = cancel, make(chan struct{})
		snapshot := c.adapter.conf.Catalog.Snapshot()
		go c.run(ctx, c.done, snapshot)
	}
	return func() {
		c.mu.Lock()
		c.watchers--
		last, done := c.watchers == 0, c.done
		if last {
			c.cancel()
		}
		c.mu.Unlock()
		if last {
			<-done
		}
	}
}

// listen is watch, with a function to be called at each change.
func (c *changes) listen(changed func(lists)) (release func()) {
	c.mu.Lock()
	if c.tell == nil {
		c.tell = map[*func(lists)]bool{}
	}
	c.tell[&changed] = true
	c.mu.Unlock()
	unwatch := c.watch()
	return func() {
		c.mu.Lock()
		delete(c.tell, &changed)
		c.mu.Unlock()
		unwatch()
	}
}

func (c *changes) run(ctx context.Context, done chan<- struct{}, snapshot *catalog.Snapshot) {
	defer close(done)
	tools, offers := c.adapter.listingsOf(snapshot).all.hash, c.adapter.offersOf(snapshot)
	for {
		select {
		case <-ctx.Done():
			return
		case <-snapshot.Superseded():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(changeSettle):
		}
		snapshot = c.adapter.conf.Catalog.Snapshot()
		var changed lists
		if hash := c.adapter.listingsOf(snapshot).all.hash; hash != tools {
			tools = hash
			changed |= ofTools
		}
		last := offers
		offers = c.adapter.offersOf(snapshot)
		if offers.promptsHash != last.promptsHash {
			changed |= ofPrompts
		}
		if offers.resourcesHash != last.resourcesHash {
			changed |= ofResources
		}
		if changed != 0 {
			c.announce(changed)
		}
	}
}

// announce tells all listeners, and makes the SDK send notifications/…/list_changed to all sessions. It does so only when something is added
// to its own registry; what is added here is never listed or used, since this door answers for all lists itself.
func (c *changes) announce(changed lists) {
	c.mu.Lock()
	tell := slices.Collect(maps.Keys(c.tell))
	c.mu.Unlock()
	for _, f := range tell {
		(*f)(changed)
	}
	server, name := c.adapter.server, "toolway_list_changed"
	if changed&ofTools != 0 {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	if changed&ofPrompts != 0 {
		server.AddPrompt(&mcp.Prompt{Name: name}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
	}
	if changed&ofResources != 0 {
		server.AddResource(&mcp.Resource{Name: name, URI: "toolway://list_changed"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		})
	}
}
