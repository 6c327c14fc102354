package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Load reads the configuration file at path, or the built-in configuration when path is empty: the kind llm.chat and
// the provider openai at OPENAI_BASE_URL with OPENAI_API_KEY. The error is [Errors]: every problem found.
func Load(path string, o Opts) (*Config, error) {
	if path == "" {
		return builtIn(o)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		fix := "check the path given with --config or ONEFOLD_CONFIG"
		if errors.Is(err, fs.ErrPermission) {
			fix = "let the user this program runs as read the file"
		}
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, Errors{{File: path, Message: fmt.Sprintf("cannot be read: %v", err), Fix: fix}}
	}
	return Parse(path, data, o)
}

// Parse reads a configuration from data; name is the file name shown in problems. The error is [Errors].
func Parse(name string, data []byte, o Opts) (*Config, error) {
	p := &problems{file: name, src: data}
	root := readYAML(p)
	c := &Config{File: name, Kinds: map[string]*Kind{}, Providers: map[string]*Provider{}, Destinations: map[string]*Destination{}, Sources: map[string]*Source{}}
	if root != nil {
		d := newDecoder(p, o)
		d.root(root, c)
		c.pos = d.pos
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	c.at = (&problems{file: p.file, src: p.src}).at
	return c, nil
}

// builtIn is what exists without a file.
func builtIn(o Opts) (*Config, error) {
	url := o.getenv("OPENAI_BASE_URL")
	key := "" // a server of one's own often asks for no key
	if url == "" || o.getenv("OPENAI_API_KEY") != "" {
		key = ", api_key_env: OPENAI_API_KEY"
	}
	if url == "" {
		url = "https://api.openai.com/v1"
	}
	text := fmt.Sprintf("providers:\n  openai: {type: openai, base_url: %q%s}\nkinds:\n  llm.chat: {provider: openai}\n", url, key)
	c, err := Parse("built-in configuration", []byte(text), o)
	var es Errors
	if errors.As(err, &es) {
		for _, e := range es {
			e.excerpt = ""
			e.Fix = "set OPENAI_API_KEY (and OPENAI_BASE_URL for another server), or give a file with --config"
		}
	}
	return c, err
}

func (d *decoder) root(v *value, c *Config) {
	m := d.mapping(v, "")
	c.Retention = d.retention(m.take("retention"))
	d.named(m.take("providers"), "providers", "provider", providerName, func(name string, v *value, path string) {
		c.Providers[name] = d.provider(name, v, path)
	})
	d.named(m.take("destinations"), "destinations", "destination", plainName, func(name string, v *value, path string) {
		c.Destinations[name] = d.destination(name, v, path)
	})
	d.named(m.take("kinds"), "kinds", "kind", kindName, func(name string, v *value, path string) {
		c.Kinds[name] = d.kind(name, v, path, c)
	})
	d.named(m.take("sources"), "sources", "source", plainName, func(name string, v *value, path string) {
		c.Sources[name] = d.source(name, v, path)
	})
	m.done()
	if v.t == tObject {
		d.together(m, c)
	}
}

// together checks what concerns several parts of the file.
func (d *decoder) together(m *mapping, c *Config) {
	if !m.has("providers") {
		d.add(m.pos, "", "no providers are given", "add a providers: section with at least one provider")
	}
	if !m.has("kinds") {
		d.add(m.pos, "", "no kinds are given", "add a kinds: section with at least one kind, as in llm.chat: {provider: openai}")
	}
	for _, k := range c.Kinds {
		d.references(k, c, m)
	}
	for _, s := range sortedSources(c) {
		d.sourceReferences(s, c, m)
	}
	d.checkSpans(c)
}
