"""placeholder replaced by the jobs part."""

PATH = "/etc/systemd/system/pscluster-job@.service"


def job_unit() -> str:
    """Unit."""
    return ""
