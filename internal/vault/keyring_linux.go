package vault

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"

	"github.com/ombud-run/ombud/internal/fault"
)

// SystemRing returns the Secret Service on the session bus at that address, or nil
// without one. It speaks the protocol itself, with connections of its own that end
// with each call: the usual library starts a bus when there is none, waits for ever
// for a prompt nobody sees, and sets variables of the process. Keys are filed with
// the attributes that library uses, so other programs find them.
func SystemRing(busAddress string) Ring {
	if busAddress == "" {
		return nil
	}
	return secretService{busAddress}
}

type secretService struct{ address string }

const (
	ssName       = "org.freedesktop.secrets"
	ssPath       = dbus.ObjectPath("/org/freedesktop/secrets")
	ssDefault    = dbus.ObjectPath("/org/freedesktop/secrets/aliases/default")
	ssService    = "org.freedesktop.Secret.Service"
	ssCollection = "org.freedesktop.Secret.Collection"
	ssItem       = "org.freedesktop.Secret.Item"
	noObject     = dbus.ObjectPath("/")
)

// ssSecret is the protocol's structure of a secret.
type ssSecret struct {
	Session     dbus.ObjectPath
	Parameters  []byte
	Value       []byte
	ContentType string
}

// within runs fn with a session of the service.
func (s secretService) within(ctx context.Context, fn func(*dbus.Conn, dbus.ObjectPath) error) error {
	conn, err := dbus.Connect(s.address, dbus.WithContext(ctx))
	if err != nil {
		return fault.New(fault.Unavailable, "no session bus answers: %w", err)
	}
	defer func() { _ = conn.Close() }() // every call on it was answered
	var none dbus.Variant
	var session dbus.ObjectPath
	err = conn.Object(ssName, ssPath).CallWithContext(ctx, ssService+".OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&none, &session)
	if err != nil {
		return ringFault("open the keyring", err)
	}
	return fn(conn, session)
}

// unlock makes sure that an object can be read. It never asks a person: nobody
// sees the question of a daemon.
func unlock(ctx context.Context, conn *dbus.Conn, what dbus.ObjectPath) error {
	var unlocked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	err := conn.Object(ssName, ssPath).CallWithContext(ctx, ssService+".Unlock", 0, []dbus.ObjectPath{what}).Store(&unlocked, &prompt)
	switch {
	case err != nil:
		return ringFault("unlock the keyring", err)
	case prompt != noObject || len(unlocked) == 0:
		// It says so even of one that was open, if it is asked about an alias.
		if locked, err := conn.Object(ssName, what).GetProperty(lockedProperty(what)); err == nil && locked.Value() == false {
			return nil
		}
		return fault.New(fault.Unavailable, "the keyring is locked and would ask for its password").
			WithHint("unlock it, as by logging in, and start ombud again")
	}
	return nil
}

func lockedProperty(what dbus.ObjectPath) string {
	if what == ssDefault {
		return ssCollection + ".Locked"
	}
	return ssItem + ".Locked"
}

// find returns the item of an account, wherever in the keyring it is.
func find(ctx context.Context, conn *dbus.Conn, account string) (dbus.ObjectPath, error) {
	var open, locked []dbus.ObjectPath
	err := conn.Object(ssName, ssPath).CallWithContext(ctx, ssService+".SearchItems", 0, attributes(account)).Store(&open, &locked)
	if err != nil {
		return "", ringFault("search the keyring", err)
	}
	found := append(open, locked...)
	if len(found) == 0 {
		return "", fault.New(fault.NotFound, "the keyring has no key of ombud for %q", account)
	}
	return found[0], unlock(ctx, conn, found[0])
}

func attributes(account string) map[string]string {
	return map[string]string{"service": ringService, "username": account}
}

func (s secretService) Get(ctx context.Context, account string) (value string, err error) {
	err = s.within(ctx, func(conn *dbus.Conn, session dbus.ObjectPath) error {
		item, err := find(ctx, conn, account)
		if err != nil {
			return err
		}
		var secret ssSecret
		if err := conn.Object(ssName, item).CallWithContext(ctx, ssItem+".GetSecret", 0, session).Store(&secret); err != nil {
			return ringFault("read the keyring", err)
		}
		value = string(secret.Value)
		clear(secret.Value)
		return nil
	})
	return value, err
}

func (s secretService) Set(ctx context.Context, account, value string) error {
	return s.within(ctx, func(conn *dbus.Conn, session dbus.ObjectPath) error {
		if err := unlock(ctx, conn, ssDefault); err != nil {
			return err
		}
		properties := map[string]dbus.Variant{
			ssItem + ".Label":      dbus.MakeVariant(fmt.Sprintf("ombud vault key (%s)", account)),
			ssItem + ".Attributes": dbus.MakeVariant(attributes(account)),
		}
		secret := ssSecret{Session: session, Parameters: []byte{}, Value: []byte(value), ContentType: "text/plain; charset=utf8"}
		defer clear(secret.Value)
		var item, prompt dbus.ObjectPath
		const replace = true
		err := conn.Object(ssName, ssDefault).CallWithContext(ctx, ssCollection+".CreateItem", 0, properties, secret, replace).Store(&item, &prompt)
		if err != nil {
			return ringFault("write to the keyring", err)
		}
		if prompt != noObject {
			return fault.New(fault.Unavailable, "the keyring would ask before it keeps a key").
				WithHint("unlock it, as by logging in, and try again")
		}
		return nil
	})
}

func (s secretService) Delete(ctx context.Context, account string) error {
	return s.within(ctx, func(conn *dbus.Conn, _ dbus.ObjectPath) error {
		item, err := find(ctx, conn, account)
		if err != nil {
			return err
		}
		var prompt dbus.ObjectPath
		if err := conn.Object(ssName, item).CallWithContext(ctx, ssItem+".Delete", 0).Store(&prompt); err != nil {
			return ringFault("remove from the keyring", err)
		}
		if prompt != noObject {
			return fault.New(fault.Unavailable, "the keyring would ask before it removes a key")
		}
		return nil
	})
}

func ringFault(doing string, err error) error {
	if e, ok := errors.AsType[dbus.Error](err); ok {
		switch e.Name {
		case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.Spawn.ExecFailed",
			"org.freedesktop.DBus.Error.Spawn.ServiceNotFound":
			return fault.New(fault.Unavailable, "no keyring runs in this session (nobody has the name %s)", ssName).
				WithHint("start one, such as gnome-keyring or KeePassXC, or choose another vault.source")
		case "org.freedesktop.Secret.Error.IsLocked":
			return fault.New(fault.Unavailable, "the keyring is locked").WithHint("unlock it, as by logging in, and start ombud again")
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Unavailable, "the keyring did not answer within %s", ringLimit)
	}
	return fault.New(fault.Unavailable, "%s: %w", doing, err)
}
