from tests.deploy.conftest import fab

__all__ = ["fab"]
