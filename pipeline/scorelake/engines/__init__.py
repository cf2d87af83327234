"""Where tasks run. An engine has one method, map(task, items); `local` is the specification of all others."""
