# SPDX-License-Identifier: Apache-2.0
"""The folders of runs that the controller keeps, their files and pages."""
