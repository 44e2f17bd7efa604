#!/usr/bin/python3
"""exportfs for nodes whose NFS server is nfs-ganesha: /etc/exports[.d] -> ganesha.conf, then SIGHUP. Supports -r -a -ra -s -v -u."""

import sys, glob, re, os, signal, subprocess


def parse():
    ex = {}
    for f in ["/etc/exports"] + sorted(glob.glob("/etc/exports.d/*.exports")):
        if not os.path.exists(f):
            continue
        for line in open(f).read().replace("\\\n", " ").splitlines():
            line = line.split("#")[0].strip()
            if not line:
                continue
            path, *cl = line.split()
            for c in cl:
                m = re.fullmatch(r"([^()]*)(?:\(([^)]*)\))?", c)
                ex.setdefault(path, []).append((m[1] or "*", (m[2] or "ro").split(",")))
    return ex


def conf(ex):
    o = [
        "NFS_CORE_PARAM { Protocols = 3,4; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }",
        "NFSv4 { Grace_Period = 5; Lease_Lifetime = 5; RecoveryBackend = fs; }",
        "EXPORT_DEFAULTS { Transports = TCP; SecType = sys; }",
        "LOG { Default_Log_Level = EVENT; }",
    ]
    for i, (p, cls) in enumerate(sorted(ex.items()), 1):
        o.append(
            "EXPORT { Export_Id = %d; Path = %s; Pseudo = %s; Protocols = 3,4; Access_Type = None; FSAL { Name = VFS; }"
            % (i, p, p)
        )
        for c, op in cls:
            g = {k: v for k, _, v in (x.partition("=") for x in op)}
            sq = "All_Squash" if "all_squash" in op else "No_Root_Squash" if "no_root_squash" in op else "Root_Squash"
            o.append(
                "  CLIENT { Clients = %s; Access_Type = %s; Squash = %s; Anonymous_Uid = %s; Anonymous_Gid = %s; }"
                % (c, "RW" if "rw" in op else "RO", sq, g.get("anonuid", 65534), g.get("anongid", 65534))
            )
        o.append("}")
    return "\n".join(o) + "\n"


ex = parse()
a = " ".join(sys.argv[1:])
for p in ex:
    if not os.path.isdir(p):
        print("exportfs: Failed to stat %s: No such file or directory" % p, file=sys.stderr)
        sys.exit(1)
if "s" in a or "v" in a or not a:
    for p, cls in ex.items():
        for c, op in cls:
            print("%s  %s(%s)" % (p, c, ",".join(op)))
    sys.exit(0)
new = conf({} if "u" in a else ex)
os.makedirs("/etc/ganesha", exist_ok=True)
open("/etc/ganesha/ganesha.conf.tmp", "w").write(new)
os.replace("/etc/ganesha/ganesha.conf.tmp", "/etc/ganesha/ganesha.conf")
r = subprocess.run(["pidof", "ganesha.nfsd"], capture_output=True, text=True).stdout.split()
if r:
    os.kill(int(r[0]), signal.SIGHUP)
