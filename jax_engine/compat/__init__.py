"""Names under which programs written for another engine find this one."""
