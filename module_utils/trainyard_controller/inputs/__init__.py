# SPDX-License-Identifier: Apache-2.0
"""Check what a user gives, with Ansible's own objects."""
