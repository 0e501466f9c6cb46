"""What schemathesis is to send, where a schema cannot say what makes sense."""

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    # No answer is to be held for long.
    wait = (case.query or {}).get("wait")
    if isinstance(wait, str) and wait.endswith(("s", "m")):
        case.query["wait"] = "50ms"
    if not isinstance(case.body, dict):
        return
    # Folders are to be there.
    cwd = case.body.get("cwd")
    if isinstance(cwd, str) and cwd.startswith("/") and "\0" not in cwd:
        case.body["cwd"] = "/"
    # The variables by which programs are found are left alone.
    if isinstance(case.body.get("env"), dict):
        case.body["env"] = {name and f"T_{name}": value for name, value in case.body["env"].items()}
