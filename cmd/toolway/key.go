package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolway/toolway/internal/identity"
)

func keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make API keys",
		Args:  cobra.NoArgs, // an unknown subcommand is an error, not a request for help
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(keyNewCommand())
	return cmd
}

func keyNewCommand() *cobra.Command {
	var (
		tenant, expires string
		scopes          []string
	)
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Make an API key, and its entry for the configuration",
		Long: `Make an API key. The key, alone, goes to standard output: give it to the caller, who sends it as x-api-key or as a bearer token.
Its entry for the configuration goes to standard error; it has the key's hash, from which nobody gets the key.`,
		Example: "  toolway key new ci --scope logs:read --expires 90d > ci.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			until, err := expiry(expires, time.Now())
			if err != nil {
				return err
			}
			if !keyName.MatchString(args[0]) {
				return fmt.Errorf("key name %q: want letters, digits, dots, dashes and underscores, at most 100", args[0])
			}
			for _, s := range scopes {
				if !identity.IsScope(s) {
					return fmt.Errorf("scope %q: want printable letters without spaces", s)
				}
			}
			key, hash := identity.NewAPIKey()
			writeEntry(cmd.ErrOrStderr(), args[0], hash, tenant, scopes, until)
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&tenant, "tenant", "", "`TENANT` that the caller acts for")
	fs.StringArrayVar(&scopes, "scope", nil, "`SCOPE` that the caller has; repeatable; logs:* has all that begin so, * has all")
	fs.StringVar(&expires, "expires", "", "`WHEN` the key ends: 90d, 12h or 2027-01-31 (default never)")
	return cmd
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// writeEntry writes a key's entry for the configuration.
func writeEntry(w io.Writer, name, hash, tenant string, scopes []string, until string) {
	var b strings.Builder
	fmt.Fprintf(&b, "auth:\n  api_keys:\n    - name: %q\n      sha256: %s\n", name, hash)
	if tenant != "" {
		fmt.Fprintf(&b, "      tenant: %q\n", tenant)
	}
	if len(scopes) > 0 {
		var quoted []string
		for _, s := range scopes {
			quoted = append(quoted, strconv.Quote(s))
		}
		fmt.Fprintf(&b, "      scopes: [%s]\n", strings.Join(quoted, ", "))
	}
	if until != "" {
		fmt.Fprintf(&b, "      expires: %q\n", until)
	}
	_, _ = io.WriteString(w, b.String()) // without standard error there is nobody to tell
}

// expiry returns a date or a time from now as the configuration has it.
func expiry(s string, now time.Time) (string, error) {
	if s == "" {
		return "", nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		if !t.After(now) {
			return "", errors.New("--expires " + s + " has passed")
		}
		return s, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			return now.Add(time.Duration(n) * 24 * time.Hour).UTC().Format(time.RFC3339), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(d).UTC().Format(time.RFC3339), nil
	}
	return "", fmt.Errorf("--expires %q: want 90d, 12h or a date such as 2027-01-31", s)
}
