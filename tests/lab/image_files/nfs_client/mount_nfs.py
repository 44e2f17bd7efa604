#!/usr/bin/python3
"""mount.nfs / mount.nfs4 for kernels without an NFS client: real NFS on the wire (libnfs), FUSE at the mount point.
usage as mount(8) helper: mount.nfs4 server:/export /mnt [-sfnv] [-o opts]"""

import sys, os, ctypes as C, errno, stat

L = C.CDLL("libnfs.so.13")
U = C.c_uint64
P = C.c_void_p


class St(C.Structure):
    _fields_ = [
        (n, U)
        for n in "dev ino mode nlink uid gid rdev size blksize blocks atime mtime ctime atime_ns mtime_ns ctime_ns used".split()
    ]


class De(C.Structure):
    pass


De._fields_ = [("next", C.POINTER(De)), ("name", C.c_char_p), ("inode", U)]


class Vfs(C.Structure):
    _fields_ = [
        (n, C.c_ulong)
        for n in "bsize frsize blocks bfree bavail files ffree favail fsid flag namemax pad1 pad2 pad3 pad4 pad5".split()
    ]


for f, r, a in [
    ("nfs_init_context", P, []),
    ("nfs_get_error", C.c_char_p, [P]),
    ("nfs_set_version", C.c_int, [P, C.c_int]),
    ("nfs_mount", C.c_int, [P, C.c_char_p, C.c_char_p]),
    ("nfs_set_uid", None, [P, C.c_int]),
    ("nfs_set_gid", None, [P, C.c_int]),
    ("nfs_lstat64", C.c_int, [P, C.c_char_p, C.POINTER(St)]),
    ("nfs_opendir", C.c_int, [P, C.c_char_p, C.POINTER(P)]),
    ("nfs_readdir", C.POINTER(De), [P, P]),
    ("nfs_closedir", None, [P, P]),
    ("nfs_open", C.c_int, [P, C.c_char_p, C.c_int, C.POINTER(P)]),
    ("nfs_open2", C.c_int, [P, C.c_char_p, C.c_int, C.c_int, C.POINTER(P)]),
    ("nfs_close", C.c_int, [P, P]),
    ("nfs_pread", C.c_int, [P, P, U, U, C.c_char_p]),
    ("nfs_pwrite", C.c_int, [P, P, U, U, C.c_char_p]),
    ("nfs_fsync", C.c_int, [P, P]),
    ("nfs_truncate", C.c_int, [P, C.c_char_p, U]),
    ("nfs_mkdir2", C.c_int, [P, C.c_char_p, C.c_int]),
    ("nfs_rmdir", C.c_int, [P, C.c_char_p]),
    ("nfs_unlink", C.c_int, [P, C.c_char_p]),
    ("nfs_rename", C.c_int, [P, C.c_char_p, C.c_char_p]),
    ("nfs_symlink", C.c_int, [P, C.c_char_p, C.c_char_p]),
    ("nfs_readlink", C.c_int, [P, C.c_char_p, C.c_char_p, C.c_int]),
    ("nfs_link", C.c_int, [P, C.c_char_p, C.c_char_p]),
    ("nfs_chmod", C.c_int, [P, C.c_char_p, C.c_int]),
    ("nfs_lchown", C.c_int, [P, C.c_char_p, C.c_int, C.c_int]),
    ("nfs_statvfs", C.c_int, [P, C.c_char_p, P]),
    ("nfs_get_readmax", U, [P]),
    ("nfs_get_writemax", U, [P]),
    ("nfs_set_timeout", None, [P, C.c_int]),
    ("nfs_set_autoreconnect", None, [P, C.c_int]),
]:
    g = getattr(L, f)
    g.restype = r
    g.argtypes = a
try:
    import fusepy as fuse
except ImportError:
    import fuse
FUSE, Operations, FuseOSError = fuse.FUSE, fuse.Operations, fuse.FuseOSError


class Nfs(Operations):
    def __init__(s, server, export, ver, ro, timeo, hard):
        s.c = L.nfs_init_context()
        s.ro = ro
        s.fh = {}
        s.n = 0
        # libnfs 4.0 speaks v4.0 but writes hang against ganesha 4.3: always v3 on the wire
        L.nfs_set_timeout(s.c, timeo)
        L.nfs_set_autoreconnect(s.c, -1 if hard else 0)
        if L.nfs_mount(s.c, server.encode(), export.encode()) != 0:
            raise OSError(errno.EACCES, (L.nfs_get_error(s.c) or b"?").decode())
        s.rmax, s.wmax = L.nfs_get_readmax(s.c), L.nfs_get_writemax(s.c)

    def ck(s, rc):
        if rc < 0:
            raise FuseOSError(-rc)
        return rc

    def w(s):
        if s.ro:
            raise FuseOSError(errno.EROFS)

    def getattr(s, path, fh=None):
        t = St()
        s.ck(L.nfs_lstat64(s.c, path.encode(), C.byref(t)))
        return dict(
            st_mode=t.mode,
            st_ino=t.ino,
            st_nlink=t.nlink,
            st_uid=t.uid,
            st_gid=t.gid,
            st_size=t.size,
            st_blocks=t.blocks,
            st_atime=t.atime + t.atime_ns / 1e9,
            st_mtime=t.mtime + t.mtime_ns / 1e9,
            st_ctime=t.ctime + t.ctime_ns / 1e9,
        )

    def readdir(s, path, fh):
        d = P()
        s.ck(L.nfs_opendir(s.c, path.encode(), C.byref(d)))
        out = []
        while True:
            e = L.nfs_readdir(s.c, d)
            if not e:
                break
            out.append(os.fsdecode(e.contents.name))
        L.nfs_closedir(s.c, d)
        return out

    def _fh(s, h):
        s.n += 1
        s.fh[s.n] = h
        return s.n

    def open(s, path, flags):
        if flags & (os.O_WRONLY | os.O_RDWR):
            s.w()
        h = P()
        s.ck(L.nfs_open(s.c, path.encode(), flags & (os.O_ACCMODE | os.O_TRUNC), C.byref(h)))
        return s._fh(h)

    def create(s, path, mode, fi=None):
        s.w()
        h = P()
        s.ck(L.nfs_open2(s.c, path.encode(), os.O_CREAT | os.O_RDWR, mode & 0o7777, C.byref(h)))
        return s._fh(h)

    def read(s, path, size, off, fh):
        out = b""
        while size:
            n = min(size, s.rmax)
            b = C.create_string_buffer(n)
            r = s.ck(L.nfs_pread(s.c, s.fh[fh], off, n, b))
            out += b.raw[:r]
            off += r
            size -= r
            if r < n:
                break
        return out

    def write(s, path, data, off, fh):
        s.w()
        done = 0
        while done < len(data):
            p = data[done : done + s.wmax]
            done += s.ck(L.nfs_pwrite(s.c, s.fh[fh], off + done, len(p), p))
        return done

    def release(s, path, fh):
        L.nfs_close(s.c, s.fh.pop(fh))
        return 0

    def fsync(s, path, ds, fh):
        return s.ck(L.nfs_fsync(s.c, s.fh[fh]))

    def truncate(s, path, n, fh=None):
        s.w()
        s.ck(L.nfs_truncate(s.c, path.encode(), n))

    def mkdir(s, path, mode):
        s.w()
        s.ck(L.nfs_mkdir2(s.c, path.encode(), mode & 0o7777))

    def rmdir(s, path):
        s.w()
        s.ck(L.nfs_rmdir(s.c, path.encode()))

    def unlink(s, path):
        s.w()
        s.ck(L.nfs_unlink(s.c, path.encode()))

    def rename(s, a, b):
        s.w()
        s.ck(L.nfs_rename(s.c, a.encode(), b.encode()))

    def symlink(s, new, target):
        s.w()
        s.ck(L.nfs_symlink(s.c, target.encode(), new.encode()))

    def link(s, new, old):
        s.w()
        s.ck(L.nfs_link(s.c, old.encode(), new.encode()))

    def readlink(s, path):
        b = C.create_string_buffer(4096)
        s.ck(L.nfs_readlink(s.c, path.encode(), b, 4096))
        return os.fsdecode(b.value)

    def chmod(s, path, m):
        s.w()
        s.ck(L.nfs_chmod(s.c, path.encode(), m & 0o7777))

    def chown(s, path, u, g):
        s.w()
        s.ck(L.nfs_lchown(s.c, path.encode(), u, g))

    def utimens(s, path, times=None):
        return 0

    def statfs(s, path):
        v = Vfs()
        s.ck(L.nfs_statvfs(s.c, path.encode(), C.byref(v)))
        return dict(
            f_bsize=v.bsize,
            f_frsize=v.frsize,
            f_blocks=v.blocks,
            f_bfree=v.bfree,
            f_bavail=v.bavail,
            f_files=v.files,
            f_ffree=v.ffree,
            f_namemax=v.namemax,
        )


def main():
    a = sys.argv[1:]
    spec, mp = a[0], a[1]
    opts = []
    for i, x in enumerate(a[2:], 2):
        if x == "-o":
            opts = a[i + 1].split(",")
    kv = dict((o.split("=", 1) + [""])[:2] for o in opts)
    server, export = spec.split(":", 1)
    ver = int((kv.get("vers") or kv.get("nfsvers") or ("4" if sys.argv[0].endswith("4") else "3"))[0])
    try:
        fs = Nfs(
            server, export, ver, "ro" in kv, int(kv.get("timeo", "600")) * 100, "soft" not in kv and "softerr" not in kv
        )
    except OSError as e:
        print("mount.nfs: mounting %s failed: %s" % (spec, e.strerror), file=sys.stderr)
        sys.exit(32)
    keep = {k: True for k in ("ro", "nosuid", "nodev", "noexec") if k in kv}
    FUSE(
        fs,
        mp,
        foreground=False,
        nothreads=True,
        fsname=spec,
        subtype="nfs4",
        allow_other=True,
        default_permissions=False,
        big_writes=True,
        max_write=131072,
        nonempty=True,
        **keep,
    )


main()
