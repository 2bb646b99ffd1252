package com.example;

import org.apache.spark.sql.api.java.UDF1;

/** A class that can't be initialised, as of a jar that lacks another one. */
public class Broken implements UDF1<String, String> {
  private static final int SIZE = Integer.parseInt("no number");

  @Override
  public String call(String text) {
    return text + SIZE;
  }
}
