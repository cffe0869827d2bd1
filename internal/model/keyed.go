package model

import (
	"context"
	"fmt"
	"sync"
)

// Keyed returns a provider whose key is asked for before every request. Where it is
// another than before, the provider is built anew, so that a changed key holds from
// the next request on. A key that cannot be had fails the request before anything is
// sent, with the error of key.
func Keyed(name string, key func(context.Context) (string, error), build func(key string) (Provider, error)) Provider {
	return &keyed{name: name, key: key, build: build}
}

type keyed struct {
	name  string
	key   func(context.Context) (string, error)
	build func(string) (Provider, error)

	mu   sync.Mutex
	with string   // the key
	now  Provider // nil before the first request
}

func (k *keyed) Name() string { return k.name }

func (k *keyed) Generate(ctx context.Context, req Request, sink Sink) (Response, error) {
	p, err := k.provider(ctx)
	if err != nil {
		return Response{}, err
	}
	return p.Generate(ctx, req, sink)
}

func (k *keyed) provider(ctx context.Context) (Provider, error) {
	key, err := k.key(ctx)
	if err != nil {
		return nil, fmt.Errorf("the key of %s: %w", k.name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now != nil && k.with == key {
		return k.now, nil
	}
	p, err := k.build(key)
	if err != nil {
		return nil, err
	}
	if old, ok := k.now.(interface{ Close() }); ok {
		old.Close() // lets idle connections go; what is under way is not hurt
	}
	k.with, k.now = key, p
	return p, nil
}

// Close lets idle connections go.
func (k *keyed) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.now.(interface{ Close() }); ok {
		p.Close()
	}
}
