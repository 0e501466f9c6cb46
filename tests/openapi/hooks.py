"""What schemathesis is to send, where a schema cannot say what makes sense."""

import re

import schemathesis

CONTROL = re.compile(r"%[01][0-9A-Fa-f]|%7[Ff]|[\x00-\x1f\x7f]")


@schemathesis.hook
def before_call(context, case, kwargs):
    # No answer is to be held for long.
    wait = (case.query or {}).get("wait")
    if isinstance(wait, str) and wait.endswith(("s", "m")):
        case.query["wait"] = "50ms"
    # A session that is to be valid comes with a control character now and then, against its pattern.
    session = (case.path_parameters or {}).get("session")
    if isinstance(session, str) and case.meta and case.meta.generation.mode.is_positive:
        case.path_parameters["session"] = CONTROL.sub("", session) or "demo"
    if not isinstance(case.body, dict):
        return
    # Folders are to be there.
    cwd = case.body.get("cwd")
    if isinstance(cwd, str) and cwd.startswith("/") and "\0" not in cwd:
        case.body["cwd"] = "/"
    # The variables by which programs are found are left alone.
    if isinstance(case.body.get("env"), dict):
        case.body["env"] = {name and f"T_{name}": value for name, value in case.body["env"].items()}
