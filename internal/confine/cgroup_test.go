package confine

import (
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The mounts of machines as their mountinfo shows them.
const (
	pureMounts = `22 28 0:21 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
29 22 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
	hybridMounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	readOnlyMounts = `600 590 0:60 /docker/abc /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate
`
	containerMounts = `600 590 0:60 /docker/abc /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime master:9 shared:3 - cgroup2 cgroup rw
`
	coveredMounts = `29 22 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
50 29 0:50 / /sys/fs/cgroup rw - tmpfs tmpfs rw
`
	oddMounts = `29 22 0:25 / /mnt/my\040c\134g\012x rw - cgroup2 my\040source rw
not a line
1 2 3
30 22 0:25 relative /x rw - cgroup2 c rw
31 22 0:25 / /y rw opt:1 opt:2 opt:3 -
`
)

func TestCgroupsAreFoundWhereTheyAreMounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mounts, self string
		v2, pids     []string
	}{
		"pure":                          {pureMounts, "0::/user.slice/user@1000.service/app.slice\n", []string{"/sys/fs/cgroup/user.slice/user@1000.service/app.slice"}, nil},
		"hybrid":                        {hybridMounts, "9:name=systemd:/\n8:pids:/a:b\n1:cpu,cpuacct:/\n0::/\n", []string{"/sys/fs/cgroup/unified"}, []string{"/sys/fs/cgroup/pids/a:b"}},
		"read-only":                     {readOnlyMounts, "0::/docker/abc\n", nil, nil},
		"none":                          {"28 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw\n", "0::/\n", nil, nil},
		"container, its own":            {containerMounts, "0::/docker/abc\n", []string{"/sys/fs/cgroup"}, nil},
		"container, below its own":      {containerMounts, "0::/docker/abc/x\n", []string{"/sys/fs/cgroup/x"}, nil},
		"container, another's":          {containerMounts, "0::/docker/abcd\n", nil, nil},
		"outside of the namespace":      {pureMounts, "0::/../other\n", nil, nil},
		"covered":                       {coveredMounts, "0::/\n", nil, nil},
		"odd":                           {oddMounts, "0::/a\nnonsense\n7:pids\n", []string{"/mnt/my c\\g\nx/a"}, nil},
		"no cgroup of version 2 for it": {hybridMounts, "8:pids:/\n", nil, []string{"/sys/fs/cgroup/pids"}},
		"empty":                         {"", "", nil, nil},
	} {
		mounts, err := parseMounts(strings.NewReader(c.mounts))
		if err != nil {
			t.Fatal(err)
		}
		self, err := parseMemberships(strings.NewReader(c.self))
		if err != nil {
			t.Fatal(err)
		}
		v2, pids := ownDirs(mounts, self)
		if !reflect.DeepEqual(v2, c.v2) || !reflect.DeepEqual(pids, c.pids) {
			t.Errorf("%s: %q and %q, want %q and %q", name, v2, pids, c.v2, c.pids)
		}
	}
}

func TestAJobIsToldByItsCgroup(t *testing.T) {
	t.Parallel()
	name := CgroupName(0xfe01, 1234567)
	if !isJobsName(name) || name == CgroupName(0xfe01, 1234568) || name == CgroupName(0xfe02, 1234567) {
		t.Fatalf("name %q", name)
	}
	for at, want := range map[string]bool{
		"/": false, "/user.slice": false, "/" + name: false, "/" + name + "/": false,
		"/" + name + "/job_1": true, "/user.slice/x.scope/" + name + "/job_1/deeper": true, "/../" + name + "/job_1": true,
		"/" + jobsPrefix + "short/job": false, "/" + jobsPrefix + strings.Repeat("g", 32) + "/job": false, "/x" + name + "/job": false,
	} {
		if isJobPath(at) != want {
			t.Errorf("%s is a job: %v", at, !want)
		}
	}
}

// escape does what the kernel does to a path.
func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(" \t\n\\#", s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func TestEveryPathComesBackFromMountinfo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		point := "/" + rapid.StringMatching(`[ -~\n\té]{0,30}`).Draw(t, "point")
		lines := rapid.SliceOf(rapid.StringMatching(`[ -~]{0,40}`)).Draw(t, "others")
		line := fmt.Sprintf("29 22 0:25 / %s rw,relatime shared:4 - cgroup2 cgroup2 rw", escape(point))
		got, err := parseMounts(strings.NewReader(strings.Join(append(lines, line), "\n")))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || got[len(got)-1].point != point {
			t.Fatalf("%q gives %+v", point, got)
		}
	})
}

func FuzzMounts(f *testing.F) {
	for _, s := range []string{pureMounts, hybridMounts, readOnlyMounts, containerMounts, coveredMounts, oddMounts, "1 1 0:1 / /\\400 ro - cgroup2 x y"} {
		f.Add(s, "0::/a\n")
	}
	f.Add(hybridMounts, "8:pids:/../..\n0::/x (deleted)\n")
	f.Fuzz(func(t *testing.T, info, own string) {
		mounts, err := parseMounts(strings.NewReader(info))
		if err != nil {
			return // a line of a megabyte
		}
		in, err := parseMemberships(strings.NewReader(own))
		if err != nil {
			return
		}
		v2, pids := ownDirs(mounts, in)
		for _, dir := range append(v2, pids...) {
			inside := false
			for _, h := range mounts {
				point := path.Clean(h.point)
				inside = inside || dir == point || strings.HasPrefix(dir, strings.TrimSuffix(point, "/")+"/")
			}
			if !inside {
				t.Fatalf("%q is below no mount", dir)
			}
		}
	})
}
