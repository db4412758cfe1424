package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// NPM installs the dependencies of the package.json in a folder of this module into the folder's node_modules, unless they are there in the
// versions that it wants, which must be exact, and returns the folder. A package-lock.json is followed where there is one.
func NPM(folder string) (string, error) {
	module, err := Module()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(module, folder)
	var wanted struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(b, &wanted); err != nil {
		return "", fmt.Errorf("read package.json of %q: %w", dir, err)
	}
	missing, err := missing(dir, wanted.Dependencies)
	if err != nil || !missing {
		return dir, err
	}
	args := []string{"ci"}
	if _, err := os.Stat(filepath.Join(dir, "package-lock.json")); errors.Is(err, fs.ErrNotExist) {
		args = []string{"install", "--no-package-lock"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", append(args, "--ignore-scripts", "--no-audit", "--no-fund")...)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm %s in %q: %w: Node.js 20 or later with npm is needed\n%s", args[0], dir, err, b)
	}
	return dir, nil
}

// missing says whether a dependency is not installed in its version.
func missing(dir string, dependencies map[string]string) (bool, error) {
	for name, version := range dependencies {
		if strings.HasPrefix(version, "npm:") { // an alias, npm:NAME@VERSION
			version = version[strings.LastIndex(version, "@")+1:]
		}
		b, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "package.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		var have struct {
			Version string `json:"version"`
		}
		if err := json.Unmarshal(b, &have); err != nil || have.Version != version {
			return true, nil //nolint:nilerr // a damaged package is installed again
		}
	}
	return false, nil
}
